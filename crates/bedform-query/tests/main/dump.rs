//! Throwaway: cases for NumPy.
use crate::evaluating::RandomCase;
use crate::model::*;
use bedform_query::*;
use std::io::Write as _;
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
fn number(n: &AttributeNumber) -> String {
    match n {
        AttributeNumber::Integer(v) => format!("[\"int\",\"{v}\"]"),
        AttributeNumber::Real(v) => format!("[\"float\",\"{v}\"]"),
        AttributeNumber::Typed(v) => format!("[\"{}\",\"{}\"]", v.value_type(), hex(&bytes_of(*v))),
    }
}
fn list(l: &[AttributeNumber]) -> String {
    format!("[{}]", l.iter().map(number).collect::<Vec<_>>().join(","))
}
fn opt(l: &Option<AttributeNumber>) -> String {
    l.as_ref().map_or("null".into(), number)
}
fn packing_json(p: &Option<Packing>) -> String {
    match p {
        None => "null".into(),
        Some(p) => format!(
            "{{\"fill\":{},\"missing\":{},\"scale\":{},\"offset\":{},\"unsigned\":{},\"boolean\":{}}}",
            list(&p.fill_value),
            list(&p.missing_value),
            opt(&p.scale_factor),
            opt(&p.add_offset),
            p.unsigned.map_or("null".into(), |u| u.to_string()),
            p.boolean
        ),
    }
}
fn values_hex(c: &RandomColumn) -> String {
    match c.decoding() {
        None => "null".into(),
        Some(d) => {
            let a = Aligned::new(&c.bytes);
            let mut v = Values::new(ValueType::Bool);
            d.decode(a.slice(c.stored), &mut v);
            let bytes: Vec<u8> =
                (0..v.len()).flat_map(|i| bytes_of(v.as_slice().get(i).unwrap())).collect();
            format!("[\"{}\",\"{}\"]", d.decoded(), hex(&bytes))
        }
    }
}
#[test]
fn dump() {
    let Ok(path) = std::env::var("CASES") else { return };
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for seed in 0..40_000_u64 {
        let case = RandomCase::new(77 << 32 | seed, 8);
        let columns: Vec<String> = case
            .columns
            .iter()
            .map(|c| {
                format!(
                    "{{\"dtype\":\"{}\",\"packing\":{},\"bytes\":\"{}\"}}",
                    c.stored,
                    packing_json(&c.packing),
                    hex(&c.bytes)
                )
            })
            .collect();
        let (result, error) = match case.bind() {
            Err(e) => ("null".to_owned(), e.message),
            Ok((p, order)) => {
                let memory: Vec<Aligned> =
                    case.columns.iter().map(|c| Aligned::new(&c.bytes)).collect();
                let slices: Vec<ValueSlice<'_>> =
                    order.iter().map(|i| memory[*i].slice(case.columns[*i].stored)).collect();
                let mut out = vec![7; case.length];
                p.evaluate(&slices, &mut PredicateScratch::default(), &mut out);
                (format!("\"{}\"", hex(&out)), String::new())
            }
        };
        writeln!(
            file,
            "{{\"length\":{},\"text\":\"{}\",\"error\":{:?},\"result\":{},\"columns\":[{}]}}",
            case.length,
            case.text,
            error,
            result,
            columns.join(",")
        )
        .unwrap();
    }
    for seed in 0..40_000_u64 {
        let random = &mut Random(78 << 32 | seed);
        let stored = random.choose(&TYPES);
        let packing = packing(random, stored);
        let mut bytes = Vec::new();
        for _ in 0..6 {
            bytes.extend(element(random, stored));
        }
        for n in packing.fill_value.iter().chain(&packing.missing_value) {
            if let AttributeNumber::Typed(v) = n {
                if v.value_type() == stored {
                    bytes.extend(bytes_of(*v));
                }
            }
            if let AttributeNumber::Integer(v) = n {
                let le = v.to_le_bytes();
                if !stored.is_float() {
                    bytes.extend(&le[..stored.bytes()]);
                } else if stored == ValueType::Float32 {
                    bytes.extend((*v as f32).to_ne_bytes());
                }
            }
            if let AttributeNumber::Real(v) = n {
                if stored == ValueType::Float32 {
                    bytes.extend((*v as f32).to_ne_bytes());
                } else if stored == ValueType::Float64 {
                    bytes.extend(v.to_ne_bytes());
                }
            }
        }
        let c = RandomColumn { stored, packing: Some(packing), bytes };
        writeln!(file, "{{\"length\":0,\"columns\":[{{\"dtype\":\"{}\",\"packing\":{},\"bytes\":\"{}\",\"values\":{}}}]}}", c.stored, packing_json(&c.packing), hex(&c.bytes), values_hex(&c)).unwrap();
    }
}
