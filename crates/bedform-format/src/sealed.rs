//! JSON objects with a seal: their length and CRC-32C, which detects every changed bit.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::checksum::{SEALED_CHECKSUM, UNSEALED, crc32c_of_sealed, set_seal};

const BEGIN: &[u8] = b"{\"seal\":\"";
/// Position of the checksum's digits.
const CHECKSUM: std::ops::Range<usize> =
    BEGIN.len() + SEALED_CHECKSUM.start..BEGIN.len() + SEALED_CHECKSUM.end;

/// Encodes `document` as a JSON object that starts with the member `seal`; `None` unless it is an
/// object with members.
pub fn to_sealed(document: &impl Serialize) -> Option<Vec<u8>> {
    let plain = serde_json::to_vec(document).ok()?;
    let members = plain.strip_prefix(b"{").filter(|members| members.starts_with(b"\""))?;
    let mut bytes = [BEGIN, UNSEALED.as_bytes(), b"\",", members].concat();
    set_seal(&mut bytes, BEGIN.len());
    Some(bytes)
}

/// Decodes bytes from [`to_sealed`]; `None` for other or changed bytes.
pub fn from_sealed<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    is_sealed(bytes).then(|| serde_json::from_slice(bytes).ok()).flatten()
}

fn is_sealed(bytes: &[u8]) -> bool {
    let Some(seal) = bytes.strip_prefix(BEGIN).and_then(|rest| rest.first_chunk::<19>()) else {
        return false;
    };
    let checksum = crc32c_of_sealed(bytes, CHECKSUM);
    *seal == *format!("{:010}:{checksum:08x}", bytes.len()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_and_every_length_is_noticed() {
        let sealed = to_sealed(&serde_json::json!({"held": [[1, 2]], "id": "r"})).unwrap();
        assert!(is_sealed(&sealed));
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&sealed).unwrap()["id"], "r");
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sealed(&changed), "bit {bit}");
        }
        assert!((0..sealed.len()).all(|length| !is_sealed(&sealed[..length])));
        assert!(!is_sealed(&[sealed, b" ".to_vec()].concat()));
        assert!(to_sealed(&serde_json::json!({})).is_none());
    }
}
