use bedform_query::{Expression, ExpressionError};

use crate::model::{Random, condition};

fn written(text: &str) -> String {
    Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

fn error(text: &str) -> ExpressionError {
    Expression::parse(text).expect_err(text)
}

#[test]
fn expressions_are_written_back_in_pythons_form() {
    for (text, expected) in [
        ("t2m>310 and lsm>.5", "t2m > 310 and lsm > 0.5"),
        ("(a>1)&(b<2)|~(c==3)", "(a > 1) & (b < 2) | ~(c == 3)"),
        ("not(a>1)or b!=2", "not a > 1 or b != 2"),
        ("a-(b-c)*-d", "a - (b - c) * -d"),
        ("((a-b))-c > 0", "a - b - c > 0"),
        ("1<a<=b", "1 < a <= b"),
        ("(1<a)<b", "(1 < a) < b"),
        ("abs( x )+minimum(a,b)", "abs(x) + minimum(a, b)"),
        ("`my name` + `a``b` + `and` > `x1`", "`my name` + `a``b` + `and` > x1"),
        ("x > 1e300 or x < -inf or x != nan", "x > 1e300 or x < -inf or x != nan"),
        ("x > 1_000 == True", "x > 1000 == True"),
        ("+x > 0", "x > 0"),
        ("a and (b and c)", "a and (b and c)"),
    ] {
        assert_eq!(written(text), expected);
    }
}

#[test]
fn what_is_written_is_parsed_to_the_same_again() {
    for seed in 0..2_000 {
        let mut text = String::new();
        condition(&mut Random(seed), 4, 3).write(&mut text);
        let once = written(&text);
        assert_eq!(written(&once), once, "{text}");
    }
    // Integers beyond 128 bits keep their nearest float.
    let huge = format!("x < 1{}", "0".repeat(60));
    assert_eq!(written(&written(&huge)), written(&huge));
    let beyond = format!("x < 1{}", "0".repeat(400));
    assert_eq!(written(&written(&beyond)), written(&beyond));
}

#[test]
fn names_appear_once_in_order() {
    let expression = Expression::parse("b > a and `a/b c` > b and abs(a) < 3").unwrap();
    assert_eq!(expression.names(), ["b", "a", "a/b c"]);
}

#[test]
fn python_precedence_holds() {
    for (text, same) in [
        ("a or b and not c", "a or (b and (not c))"),
        ("a | b ^ c & d", "a | (b ^ (c & d))"),
        ("a > 1 & b", "a > (1 & b)"),
        ("a + b * c - d / e", "(a + (b * c)) - (d / e)"),
        ("-a * b", "(-a) * b"),
        ("~a & b", "(~a) & b"),
        ("not a == b", "not (a == b)"),
    ] {
        assert_eq!(written(text), written(same));
    }
}

#[test]
fn errors_point_at_the_column_and_say_what_to_write() {
    for (text, column, part) in [
        ("t2m > 310 andd lsm", 10, "operator is missing"),
        ("a = 1", 2, "write `==`"),
        ("a && b", 2, "`and`"),
        ("a || b", 2, "`or`"),
        ("!a", 0, "`not`"),
        ("a ** 2 > 1", 2, "sqrt"),
        ("a % 2 == 0", 2, "+ - * /"),
        ("a // 2 == 0", 2, "+ - * /"),
        ("a[0] > 1", 1, "region="),
        ("a.b > 1", 1, "`a.b`"),
        ("a == 'x'", 5, "texts"),
        ("log(a) > 1", 0, "there are abs, sqrt, minimum"),
        ("minimum(a) > 1", 0, "takes 2 arguments, not 1"),
        ("abs(a, b) > 1", 0, "takes 1 argument, not 2"),
        ("(a > 1", 0, "closing bracket"),
        ("abs(a > 1", 0, "closing bracket"),
        ("a > 1)", 5, "closes no bracket"),
        ("a >", 3, "ends where"),
        ("a > < b", 4, "missing before `<`"),
        ("a in b", 2, "`in` is not supported"),
        ("a if b else c", 2, "`if` is not supported"),
        ("a == not b", 5, "brackets"),
        ("a > 007", 4, "without them"),
        ("a > 1__0", 4, "not a number"),
        ("a > 1j", 4, "decimal number"),
        ("a > 0x10", 4, "decimal number"),
        ("2t > 1", 0, "backquotes"),
        ("`a > 1", 0, "backquote is missing"),
        ("`` > 1", 0, "empty"),
        ("a > 1 # note", 6, "not supported"),
        ("\u{e4}b > 1 \u{20ac}", 7, "has no meaning"),
        ("a, b", 1, "arguments of functions"),
        ("lambda", 0, "not supported"),
        ("abs(a,, b) > 1", 6, "arguments of functions"),
    ] {
        let error = error(text);
        assert_eq!(error.column, Some(column), "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
        assert!(!error.message.contains('\n'), "{text}");
    }
    assert_eq!(error("  ").column, None);
}

#[test]
fn brackets_and_operators_without_end_are_one_error() {
    for text in [
        "(".repeat(10_000),
        "-".repeat(10_000) + "x",
        "~".repeat(10_000) + "x",
        "not ".repeat(10_000) + "x",
        "abs(".repeat(10_000),
        format!("{}x{}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("x{} > 0", " + x".repeat(10_000)),
        "x and y or ".repeat(5_000),
    ] {
        let error = error(&text);
        assert!(error.message.len() < 200, "{error}");
    }
    assert!(error(&"x".repeat(1 << 17)).message.contains("65536"));
}

#[test]
fn many_conditions_joined_by_one_word_are_no_deep_tree() {
    let text = vec!["x > 1"; 5_000].join(" or ");
    assert_eq!(written(&text), text);
}
