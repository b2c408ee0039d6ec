use super::*;
use crate::error::Result;

fn value(text: &str) -> Result<Value> {
    let define = r#"{"define": {"A": 10, "L": [A + i for i in range(3)], "S": "x", "O": {"k": S}, "R": R2, "R2": R}, "v": "#;
    let text = format!("{define}{text}}}");
    let root = parse(&text)?;
    let environment = |name: &str| (name == "HOME_OF").then(|| "/me".to_owned());
    let value = Evaluator::new(&root, &[], &environment, None).value_of(&root, "v");
    value.map(|value| value.unwrap())
}

/// `value` as JSON without blanks.
fn json(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::List(list) => format!("[{}]", list.iter().map(json).collect::<Vec<_>>().join(",")),
        Value::Object(object) => {
            let pairs: Vec<_> = object.pairs.iter().map(|(k, v)| format!("{k:?}:{}", json(v))).collect();
            format!("{{{}}}", pairs.join(","))
        }
        value => value.text().unwrap().to_string(),
    }
}

#[test]
fn what_expressions_mean() {
    for (text, expect) in [
        ("[1, 2.5, true, null, \"a\\n\\u0041\",]", "[1,2.5,true,null,\"a\\nA\"]"),
        ("# note\n {\"a\": 1, # more\n \"b\": [], }", "{\"a\":1,\"b\":[]}"),
        ("1 + 2 * 3 - 4 / 3 % 5", "6"),
        ("-A + (2 - 5) * 2", "-16"),
        ("7 / 2.0", "3.5"),
        ("\"f.\" + A + \".txt\"", "\"f.10.txt\""),
        ("[1] + [2]", "[1,2]"),
        ("not A == 10 or A > 3 and A <= 10 and \"a\" < \"b\"", "true"),
        ("1 == 1.0 and [1] != [2] and null == null", "true"),
        ("L", "[10,11,12]"),
        ("L[0] + L[-1]", "22"),
        ("L[1:] + L[:1] + L[5:]", "[11,12,10]"),
        ("O[\"k\"]", "\"x\""),
        ("HOME_OF + \"/b\"", "\"/me/b\""),
        ("[[i, j] for i in range(3) for j in range(i) if i + j != 2]", "[[1,0],[2,1]]"),
        ("[\"a\", x + x for x in [\"b\"], \"c\"]", "[\"a\",\"bb\",\"c\"]"),
        ("range(5, 0, -2)", "[5,3,1]"),
        ("range(7, 3)", "[]"),
        ("len(L) + len(\"abc\") + len(O)", "7"),
        ("ceil(A / 3) + ceil(2.1) + floor(2.9)", "8"),
        ("join(L) + join([\"a\", 1], \", \")", "\"10 11 12a, 1\""),
        ("format(\"%s_%03d|%-4d|%5.2f%%\", \"q\", 7, 8, 1.0)", "\"q_007|8   | 1.00%\""),
        ("template(\"{S}{i}{{}}\", {\"i\": A + 1})", "\"x11{}\""),
        ("[template(\"f.{i}\") for i in range(2)]", "[\"f.0\",\"f.1\"]"),
        (
            "[basename(\"a/b.csv\", \".csv\"), basename(\"/a/b/\"), dirname(\"a/b\"), dirname(\"a\")]",
            "[\"b\",\"b\",\"a\",\".\"]",
        ),
        ("\"a b\".escape()", "\"'a b'\""),
        ("\"test\".like(\".es.*\")", "true"),
    ] {
        match value(text) {
            Ok(value) => assert_eq!(json(&value), expect, "{text}"),
            Err(e) => panic!("{text}: {e}"),
        }
    }
}

#[test]
fn what_means_nothing_is_said_with_its_line() {
    for (text, expect) in [
        ("\n\nUNKNOWN", "line 3: the name `UNKNOWN` is not defined"),
        ("R", "names stand for each other without end"),
        ("1 / 0", "line 1: a division by zero"),
        ("9223372036854775807 + 1", "a number is too large"),
        ("[1] - 2", "`-` cannot be applied to a list and a number"),
        ("L[9]", "a list of 3 has no number 9"),
        ("O[\"z\"]", "an object has no key `z`"),
        ("fetch(\"x\")", "the function `fetch` is not known here"),
        ("range(\"x\")", "`range` cannot be applied to (a text)"),
        ("range(1, 2, 0)", "`range` cannot be applied"),
        ("range(99999999999)", "grows beyond"),
        ("[x for x in 3]", "a `for` over `x` wants a list"),
        ("[x for x in L if x]", "what follows `if` is not true or false"),
        ("format(\"%d\")", "more placeholders than values"),
        ("format(\"%d\", \"a\")", "`%d` does not fit a text"),
        ("format(\"%99999d\", 1)", "no placeholder that is understood"),
        ("template(\"{S\")", "has no other end"),
        ("template(\"{L}\")", "is a list, which no text holds"),
        ("[1 2]", "line 1: `2` stands where `,` should be"),
        ("{\"a\" 1}", "`1` stands where `:` should be"),
        ("\"a", "the file breaks off inside a text"),
        ("[1,", "`}` stands where a value should be"),
        ("$", "`$` begins nothing"),
    ] {
        let error = value(text).err().unwrap_or_else(|| panic!("{text} is taken")).to_string();
        assert!(error.contains(expect), "{text}: {error}");
    }
    let deep = "[".repeat(100_000);
    assert!(value(&deep).unwrap_err().to_string().contains("deep"));
    let deep = "-".repeat(100_000);
    assert!(value(&deep).unwrap_err().to_string().contains("deep"));
    let deep = "not ".repeat(100_000);
    assert!(value(&deep).unwrap_err().to_string().contains("deep"));
    for chained in ["1 + ".repeat(100_000), "L".to_owned() + &"[0]".repeat(100_000)] {
        let error = value(&(chained + "1")).unwrap_err().to_string();
        assert!(error.contains("more than 200 operators"), "{error}");
    }
    assert!(parse("[1, 2").unwrap_err().to_string().contains("breaks off"));
}

#[test]
fn a_small_text_does_not_fill_memory() {
    let mut text = String::from("{\"define\": {\"V0\": \"0123456789012345\"");
    for n in 1..60 {
        text.push_str(&format!(", \"V{n}\": V{} + V{}", n - 1, n - 1));
    }
    text.push_str("}, \"v\": V59}");
    let root = parse(&text).unwrap();
    let error = Evaluator::new(&root, &[], &|_| None, None).value_of(&root, "v").unwrap_err();
    assert!(error.to_string().contains("grows beyond"), "{error}");
}
