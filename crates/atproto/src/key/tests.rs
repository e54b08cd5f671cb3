use proptest::prelude::*;

use super::*;
use crate::fixtures::hex;

const CURVES: [Curve; 2] = [Curve::K256, Curve::P256];

/// The order of each curve's group, from SEC 2 and FIPS 186.
fn order(curve: Curve) -> Vec<u8> {
    hex(match curve {
        Curve::K256 => "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
        Curve::P256 => "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
    })
}

fn key(curve: Curve, byte: u8) -> SecretKey {
    SecretKey::from_bytes(curve, &[byte; 32]).expect("within the order of both curves")
}

/// The same signature with the other `s`.
fn other_form(curve: Curve, signature: &[u8]) -> Vec<u8> {
    let mut other = signature[..32].to_vec();
    let mut borrow = 0;
    let mut s = Vec::new();
    for (whole, part) in order(curve).iter().zip(&signature[32..]).rev() {
        let difference = i32::from(*whole) - i32::from(*part) - borrow;
        borrow = i32::from(difference < 0);
        s.push(difference.to_le_bytes()[0]);
    }
    s.reverse();
    other.extend(s);
    other
}

#[test]
fn the_public_key_of_the_secret_number_one_is_the_generator() {
    let mut one = [0; 32];
    one[31] = 1;
    let k256 = SecretKey::from_bytes(Curve::K256, &one).expect("a key").public_key();
    assert_eq!(k256.to_sec1(), hex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"));
    assert!(k256.to_string().starts_with("did:key:zQ3s"), "{k256}");
    let p256 = SecretKey::from_bytes(Curve::P256, &one).expect("a key").public_key();
    assert_eq!(p256.to_sec1(), hex("036b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"));
    assert!(p256.to_string().starts_with("did:key:zDn"), "{p256}");
}

#[test]
fn a_signature_is_of_its_bytes_by_its_key_in_its_lower_form() {
    for curve in CURVES {
        let (secret, other) = (key(curve, 7), key(curve, 8));
        let signature = secret.sign(b"message");
        assert_eq!(signature, secret.sign(b"message"), "signing is deterministic");
        let public = secret.public_key();
        assert_eq!(public.verify(b"message", &signature), Ok(()));
        assert_eq!(public.verify(b"messagf", &signature), Err(KeyError::Wrong));
        assert_eq!(other.public_key().verify(b"message", &signature), Err(KeyError::Wrong));
        let high = other_form(curve, &signature);
        assert_eq!(other_form(curve, &high), signature);
        assert_eq!(public.verify(b"message", &high), Err(KeyError::HighS), "{curve:?}");
        for malformed in [&signature[..63], &[&signature[..], &[0]].concat(), &[], &[0; 64], &[0xff; 64]] {
            assert_eq!(public.verify(b"message", malformed), Err(KeyError::Malformed), "{curve:?}");
        }
    }
}

#[test]
fn keys_that_are_none_are_refused() {
    for curve in CURVES {
        for bytes in [&[0; 32][..], &order(curve), &[1; 31], &[1; 33], &[]] {
            assert_eq!(SecretKey::from_bytes(curve, bytes).err(), Some(KeyError::Key));
        }
        for point in
            [&[][..], &[0], &[2; 32], &[&[5], &[1; 32][..]].concat(), &[&[2], &[0xff; 32][..]].concat()]
        {
            assert_eq!(PublicKey::from_sec1(curve, point).err(), Some(KeyError::Key), "{point:?}");
        }
        let point = key(curve, 9).public_key().to_sec1();
        let text = |codec: [u8; 2], point: &[u8]| format!("z{}", base58(&[&codec[..], point].concat()));
        assert!(PublicKey::from_multibase(&text(curve.multicodec(), &point)).is_ok());
        assert!(PublicKey::from_bare_multibase(curve, &format!("z{}", base58(&point))).is_ok());
        assert_eq!(PublicKey::from_multibase(&text([0xed, 0x01], &point)).err(), Some(KeyError::Curve));
        assert_eq!(
            PublicKey::from_multibase(&text(curve.multicodec(), &point[1..])).err(),
            Some(KeyError::Key)
        );
    }
    for text in ["", "z", "Q3s", "mAAAA", "z0OIl", &format!("z{}", "1".repeat(1000))] {
        assert!(PublicKey::from_multibase(text).is_err(), "{text}");
    }
    assert_eq!("zQ3s".parse::<PublicKey>().err(), Some(KeyError::Encoding));
}

#[test]
fn a_secret_key_does_not_show_itself() {
    let shown = format!("{:?}", key(Curve::K256, 7));
    assert!(shown.contains("did:key:") && !shown.contains("07070707"), "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn keys_and_signatures_come_back(number in any::<[u8; 32]>(), message in proptest::collection::vec(any::<u8>(), 0..100), p256 in any::<bool>()) {
        let curve = CURVES[usize::from(p256)];
        let Ok(secret) = SecretKey::from_bytes(curve, &number) else { return Ok(()) };
        let public = secret.public_key();
        prop_assert_eq!(public.to_string().parse::<PublicKey>(), Ok(public.clone()));
        prop_assert_eq!(PublicKey::from_sec1(curve, &public.to_sec1()), Ok(public.clone()));
        let signature = secret.sign(&message);
        prop_assert_eq!(public.verify(&message, &signature), Ok(()));
        prop_assert_eq!(public.verify(&message, &other_form(curve, &signature)), Err(KeyError::HighS));
    }

    /// The libraries that compute the equation agree, on right and wrong signatures.
    #[cfg(feature = "native")]
    #[test]
    fn both_ways_to_the_equation_give_the_same_answer(
        number in any::<[u8; 32]>(),
        message in proptest::collection::vec(any::<u8>(), 0..100),
        flip in proptest::option::of(0..512_usize),
        p256 in any::<bool>(),
    ) {
        let curve = CURVES[usize::from(p256)];
        let Ok(secret) = SecretKey::from_bytes(curve, &number) else { return Ok(()) };
        let mut signature = secret.sign(&message);
        if let Some(bit) = flip {
            signature[bit / 8] ^= 1 << (bit % 8);
        }
        let answers = match secret.public_key().0 {
            Public::K256(key) => k256::ecdsa::Signature::from_slice(&signature)
                .ok()
                .filter(|signature| signature.normalize_s() == *signature)
                .map(|signature| (
                    equation::native::k256(&key, &message, &signature),
                    equation::portable::k256(&key, &message, &signature),
                )),
            Public::P256(key) => p256::ecdsa::Signature::from_slice(&signature)
                .ok()
                .filter(|signature| signature.normalize_s() == *signature)
                .map(|signature| (
                    equation::native::p256(&key, &message, &signature),
                    equation::portable::p256(&key, &message, &signature),
                )),
        };
        if let Some((native, portable)) = answers {
            prop_assert_eq!(native, portable);
            prop_assert_eq!(native, flip.is_none());
        } else {
            prop_assert!(flip.is_some());
        }
    }

    #[test]
    fn any_signature_is_judged_without_a_panic(signature in proptest::collection::vec(any::<u8>(), 60..68), p256 in any::<bool>()) {
        let public = key(CURVES[usize::from(p256)], 3).public_key();
        prop_assert!(public.verify(b"x", &signature).is_err());
    }
}
