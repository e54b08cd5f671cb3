use clap::CommandFactory;

use super::*;

fn parse(arguments: &[&str]) -> Cli {
    Cli::try_parse_from([&["alluvium-bench"], arguments].concat()).unwrap()
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn appends_are_measured_at_each_number_of_connections() {
    let workloads =
        parse(&["appends", "--connections", "2,5", "--bytes", "100", "--duration", "0.5"]).workloads();
    let [Workload::Appends(first), Workload::Appends(second)] = workloads.as_slice() else {
        panic!("two workloads, not {workloads:?}")
    };
    assert_eq!((first.connections, second.connections), (2, 5));
    assert_eq!((first.bytes, first.spread), (100, Spread::StreamEach));
    assert_eq!(first.duration, Duration::from_millis(500));
}

#[test]
fn all_has_every_workload_and_quick_makes_it_small() {
    assert_eq!(parse(&["all"]).workloads().len(), 8);
    let workloads = parse(&["--quick", "all"]).workloads();
    let Some(Workload::Streams(streams)) = workloads.last() else { panic!("streams come last") };
    assert_eq!(streams.count, 2000);
    assert_eq!(parse(&["--quick", "all"]).common.runs(), 1);
    assert_eq!(parse(&["--quick", "--runs", "5", "all"]).common.runs(), 5);
}

#[test]
fn load_is_bounded() {
    for arguments in [
        ["appends", "--connections", "5000"],
        ["appends", "--duration", "601"],
        ["appends", "--duration", "-1"],
        ["appends", "--duration", "NaN"],
        ["fan-out", "--subscribers", "10001"],
        ["streams", "--count", "3000000"],
        ["all", "--runs", "0"],
    ] {
        assert!(
            Cli::try_parse_from([&["alluvium-bench"], &arguments[..]].concat()).is_err(),
            "{arguments:?}"
        );
    }
}

#[test]
fn one_or_two_servers_with_different_names_are_measured() {
    let count = |servers: &[&str]| {
        let arguments: Vec<&str> = servers.iter().flat_map(|server| ["--server", server]).collect();
        parse(&[&["all"], arguments.as_slice()].concat()).common.targets().map(|targets| targets.len())
    };
    assert_eq!(count(&["a=serve {port}"]).unwrap(), 1);
    assert_eq!(count(&["a=serve {port}", "b=http://127.0.0.1:1"]).unwrap(), 2);
    assert!(count(&[]).is_err());
    assert!(count(&["a=serve {port}", "a=serve {port}"]).is_err());
    assert!(count(&["a=serve {port}", "b=serve {port}", "c=serve {port}"]).is_err());
}

#[test]
fn what_is_told_of_a_server_goes_to_the_one_named() {
    let cli = parse(&[
        "all",
        "--server",
        "a=http://127.0.0.1:1",
        "--server",
        "b=http://127.0.0.1:2",
        "--pid",
        "b=42",
        "--data-dir",
        "a=/var/x",
    ]);
    let targets = cli.common.targets().unwrap();
    assert_eq!((targets[0].pid, targets[1].pid), (None, Some(42)));
    assert_eq!(targets[0].data_dir.as_deref(), Some(std::path::Path::new("/var/x")));
    let unknown = parse(&["all", "--server", "a=http://127.0.0.1:1", "--pid", "c=1"]);
    assert!(unknown.common.targets().is_err());
}
