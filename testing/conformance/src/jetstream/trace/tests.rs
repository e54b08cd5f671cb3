use super::*;

const TRACE: &str = r#"7 openat(AT_FDCWD</>, "/d/a, b", O_RDWR|O_CREAT|O_APPEND|O_CLOEXEC, 0777) = 3</d/a, b>
7 write(3</d/a, b>, "he\"l\\lo\0\0011\377, ) = 3\n", 19) = 19
7 pwritev(3</d/a, b>, [{iov_base="ab", iov_len=2}, {iov_base="cd", iov_len=2}], 2, 7 <unfinished ...>
8 sendto(5<socket:[9]>, "HTTP/1.1 101 Switching Protocols\r\n\r\n\201\3[1]\201", 42, 0, NULL, 0) = 42
9 sendto(5<socket:[9]>, "\2{}\211\0", 5, 0, NULL, 0 <unfinished ...>
7 <... pwritev resumed>)                = 4
7 openat(AT_FDCWD</>, "/d/none", O_RDONLY) = -1 ENOENT (No such file or directory)
9 <... sendto resumed>) = 5
7 fsync(3</d/a, b>) = 0
7 rename("/d/a, b", "/d/c") = 0
7 write(3</d/c>(deleted), "q", 1) = 1
7 write(2</elsewhere>, "q", 1) = 1
8 sendto(6<socket:[10]>, "HTTP/1.1 200 OK\r\n\r\n\201\2[1]", 23, 0, NULL, 0) = 23
7 fsync(3</d/c> <unfinished ...>
7 +++ killed by SIGKILL +++
"#;

#[test]
fn what_was_done_and_told_is_read_in_its_order() {
    let steps: Vec<String> =
        steps(TRACE, Path::new("/d")).unwrap().iter().map(|step| format!("{step:?}")).collect();
    let path = PathBuf::from("/d/a, b");
    let write =
        |path: &Path, at, data: &[u8]| Op::Write { file: 3, path: path.to_owned(), at, data: data.to_vec() };
    let renamed = Path::new("/d/c");
    let expected = [
        Step::Disk(Op::Open { file: 3, path: path.clone(), appends: true, empties: false }),
        Step::Disk(write(&path, None, b"he\"l\\lo\0\x011\xff, ) = 3\n")),
        Step::Told(serde_json::json!([1])),
        // Told when it began to be sent, and written when the call had returned.
        Step::Told(serde_json::json!({})),
        Step::Disk(write(&path, Some(7), b"abcd")),
        Step::Disk(Op::Sync { file: 3, path: path.clone() }),
        Step::Disk(Op::Rename { from: path, to: renamed.to_owned() }),
        Step::Disk(write(renamed, None, b"q")),
    ];
    assert_eq!(steps, expected.iter().map(|step| format!("{step:?}")).collect::<Vec<_>>());
}

#[test]
fn what_is_not_understood_is_an_error() {
    for line in [
        "7 linkat(AT_FDCWD</>, \"/d/a\", AT_FDCWD</>, \"/d/b\", 0) = 0",
        "7 fallocate(3</d/a>, 0, 0, 10) = 0",
        "7 mmap(NULL, 10, PROT_READ|PROT_WRITE, MAP_SHARED, 3</d/a>, 0) = 0x7f00",
        "7 write(3</d/a>, \"ab\"..., 10) = 10",
    ] {
        assert!(steps(line, Path::new("/d")).is_err(), "{line}");
        assert!(
            steps(&line.replace("/d/", "/e/"), Path::new("/d")).is_ok_and(|steps| steps.is_empty()),
            "{line}"
        );
    }
}
