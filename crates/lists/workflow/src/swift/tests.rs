use super::*;
use crate::Format;
use crate::model::Use;
use eyas_terms::array::Command;
use proptest::strategy::Strategy;
use std::os::unix::ffi::OsStrExt;

/// The tasks of a script, a line each, and what the script prints.
fn unfold_in(script: &str, arguments: &[&str], dir: Option<&Path>) -> Result<(Vec<String>, String)> {
    let mut given = SwiftArguments::default();
    given.add(&arguments.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()).unwrap();
    let mut printed = String::new();
    let workflow = parse(script, "script", dir, &given, &mut |text| printed.push_str(text))?;
    let names = |uses: &[Use]| {
        uses.iter().map(|u| workflow.files[u.file as usize].name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let lines = workflow.tasks.iter().map(|task| {
        let command = match &task.command {
            Some(Command::Exec(argv)) => argv.join("|"),
            Some(Command::Shell(line)) => format!("$ {line}"),
            None => unreachable!("every task has a command"),
        };
        let parents = task.parents.iter().map(|p| format!(" after {p}")).collect::<String>();
        format!("{}: {command} [{} -> {}]{parents}", task.id, names(&task.inputs), names(&task.outputs))
    });
    Ok((lines.collect(), printed))
}

fn unfold(script: &str) -> (Vec<String>, String) {
    unfold_in(script, &[], None).unwrap_or_else(|e| panic!("{e}\n{script}"))
}

fn tasks(script: &str) -> Vec<String> {
    unfold(script).0
}

fn printed(script: &str) -> String {
    unfold(script).1
}

fn refused(script: &str) -> String {
    match unfold_in(script, &[], None) {
        Ok((tasks, printed)) => panic!("it was read: {tasks:?} {printed}\n{script}"),
        Err(e) => e.to_string(),
    }
}

const CAT: &str = "type file; app (file o) cat(file i[]) { cat filenames(i) stdout=@o; }
app (file o) make(int n) { make n stdout=filename(o); }\n";

#[test]
fn stages_and_loops_become_tasks() {
    let script = format!(
        "{CAT}
        file all <\"out/all.txt\">;
        file parts[];
        all = cat(parts);
        foreach i in [0:toInt(arg(\"n\", \"2\"))-1] {{
            file part <single_file_mapper; file=strcat(\"out/part_\", i, \".txt\")>;
            part = make(i * 10);
            parts[i] = part;
        }}"
    );
    assert_eq!(
        tasks(&script),
        [
            "make_0: $ make 0 > out/part_0.txt [ -> out/part_0.txt]",
            "make_1: $ make 10 > out/part_1.txt [ -> out/part_1.txt]",
            "cat_0: $ cat out/part_0.txt out/part_1.txt > out/all.txt [out/part_0.txt out/part_1.txt -> out/all.txt]",
        ]
    );
    assert_eq!(unfold_in(&script, &["-n=7"], None).unwrap().0.len(), 8);
}

#[test]
fn the_order_of_statements_does_not_matter() {
    assert_eq!(printed("int a; int b; int c; trace(c); c = b + 1; b = a * 2; a = 5;"), "11\n");
    assert_eq!(printed("int a[]; foreach v, k in a { trace(k, v); } a[3] = 1; a[1] = 2;"), "3, 1\n1, 2\n");
    assert_eq!(
        printed("int a[]; trace(length(a)); if (true) { a[0] = 1; } foreach i in [1:3] { a[i] = i; }"),
        "4\n"
    );
    assert_eq!(
        printed("string s[]; string t[]; t = s; trace(strjoin(t, \"-\")); s = [\"x\", \"y\"];"),
        "x-y\n"
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn in_any_order_statements_make_the_same_tasks(
        order in proptest::prelude::Just((0..9).collect::<Vec<usize>>()).prop_shuffle()
    ) {
        let statements = [
            "int n = 3;",
            "file parts[];",
            "foreach i in [0:n-1] { parts[i] = make(i); if (i > 0) { more[i] = cat(pair(i)); } }",
            "file more[];",
            "(file r[]) pair(int i) { r[0] = make(i + 10); r[1] = make(i + 20); }",
            "file all <strcat(\"all\", k, \".txt\")>;",
            "all = cat(parts);",
            "int k = length(more) + n;",
            "foreach m, i in more { file c <strcat(\"copy\", i)>; c = m; }",
        ];
        let lines = |order: &[usize]| {
            let script: Vec<&str> = order.iter().map(|n| statements[*n]).collect();
            let mut lines: Vec<String> =
                tasks(&format!("{CAT}{}", script.join("\n"))).iter().map(|line| line.split_once(": ").unwrap().1.into()).collect();
            lines.sort();
            lines
        };
        let expect = lines(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        // 3 parts, 2 pairs with what they are joined to, all parts, 2 copies.
        proptest::prop_assert_eq!(expect.len(), 3 + 2 * 3 + 1 + 2);
        proptest::prop_assert_eq!(lines(&order), expect);
    }
}

#[test]
fn a_loop_over_an_array_that_it_adds_to_ends() {
    let text = printed("int a[]; a[3] = 1; foreach v, k in a { if (k < 10) { a[k + 10] = 1; } trace(k); }");
    assert_eq!(text, "3\n13\n");
}

#[test]
fn what_expressions_mean() {
    for (expression, expect) in [
        ("2+2*3", "8"),
        ("99 %/ 4", "24"),
        ("99 %% 20", "19"),
        ("7/2", "3.5"),
        ("1.0/3.0", "0.3333333333333333"),
        ("42.1+93.2", "135.3"),
        ("-(3-5)", "2"),
        ("\"a\" + 1 + 2.5", "a12.5"),
        ("1 < 2 && !(2 <= 1) || false", "true"),
        ("\"a\" == \"a\"", "true"),
        ("1 == 1.0", "true"),
        ("@strcut(\"abcdefghi\", \"abc(def)ghi\")", "def"),
        ("@regexp(\"abcdefghi\", \"c(def)g\", \"mon$1key\")", "abmondefkeyhi"),
        ("@toint(\"010\") + toInt(2.9)", "12"),
        ("strsplit(\"ab c  def\", \"\\\\s\")", "{0 = ab, 1 = c, 2 = , 3 = def}"),
        ("strjoin([1, 2], \":\")", "1:2"),
        ("sprintf(\"%s=%i|%f|%b|%%|%5d|%03i\\n\", \"x\", 7, 1.5, true, 42, 7)", "x=7|1.5|true|%|   42|007\n"),
        ("[1:7:3]", "{0 = 1, 1 = 4, 2 = 7}"),
        ("[3:1:-1]", "{0 = 3, 1 = 2, 2 = 1}"),
        ("length([3, 1, 4])", "3"),
        ("pad(4, 42)", "0042"),
        ("max(2, 3) + floor(2.5)", "5"),
    ] {
        assert_eq!(printed(&format!("trace({expression});")), format!("{expect}\n"), "{expression}");
    }
}

#[test]
fn structs_arrays_and_procedures() {
    assert_eq!(
        printed(
            "type p { int x, y; } p all[]; all[0].x = 1; all[0].y = 2; all[1].y = 3; all[1].x = 4; trace(all.y, all[*].x);"
        ),
        "{0 = 2, 1 = 3}, {0 = 1, 1 = 4}\n"
    );
    assert_eq!(
        printed("(int r) add(int a, int b = 10) { r = a + b; } trace(add(1), add(add(1, 2), b=3));"),
        "11, 6\n"
    );
    assert_eq!(
        printed(
            "(int r) f(int x) { r = x; } (string r) f(string x) { r = x + \"!\"; } trace(f(1), f(\"a\"));"
        ),
        "1, a!\n"
    );
    assert_eq!(
        printed(
            "(int q, int r) div(int a, int b) { q = a %/ b; r = a %% b; } (int x, int y) = div(17, 5); trace(x, y);"
        ),
        "3, 2\n"
    );
    assert_eq!(
        printed("int[auto] a; foreach i in [1:3] { a << i * 2; } foreach v, k in a { tracef(\"%i \", v); }"),
        "2 4 6 "
    );
    assert_eq!(
        printed("int m[string][int]; m[\"a\"][4] = 5; foreach v, k in m[\"a\"] { trace(k, v); }"),
        "4, 5\n"
    );
    assert_eq!(printed("type p { int x; string s; } p v = {\"x\": 1, s: \"t\"}; trace(v.s);"), "t\n");
    assert_eq!(printed("global int n = 3; f(int a) { trace(a * n); } f(2);"), "6\n");
}

#[test]
fn choices_and_rounds() {
    assert_eq!(
        printed("switch (8) { case 3: trace(\"a\"); case 8: trace(\"b\"); default: trace(\"c\"); }"),
        "b\n"
    );
    assert_eq!(printed("if (1 > 2) { trace(1); } else if (true) { trace(2); } else { trace(3); }"), "2\n");
    assert_eq!(printed("iterate i { trace(i); } until (i == 3);"), "0\n1\n2\n");
    assert_eq!(printed("iterate i { trace(i); int j = i; } until (j == 3);"), "0\n1\n2\n3\n");
    assert_eq!(
        printed("int a[]; a[0] = 1; iterate i { a[i + 1] = a[i] * 2; } until (i > 3); trace(a[4]);"),
        "16\n"
    );
}

#[test]
fn mappers_name_files() {
    for (declaration, used, expect) in [
        ("file f <\"x.txt\">;", "f", "x.txt"),
        ("file f <simple_mapper; prefix=\"foo\", suffix=\".txt\">;", "f", "foo.txt"),
        (
            "file f[] <simple_mapper; location=\"d\", prefix=\"b.\", suffix=\".o\", padding=2>;",
            "f[7]",
            "d/b.07.o",
        ),
        ("file f[] <SimpleMapper; prefix=\"b\", padding=0>;", "f[12]", "b12"),
        (
            "type v { file h; file d; } v f[] <simple_mapper; prefix=\"p.\", suffix=\".x\", separator=\"-\">;",
            "f[1].h",
            "p.0001-h.x",
        ),
        ("file f[] <fixed_array_mapper; files=\"a b, c\">;", "f[2]", "c"),
        ("string s[] = [\"p\", \"q\"]; file f[] <array_mapper; files=s>;", "f[1]", "q"),
        (
            "file g <\"pic.gif\">; file f <regexp_mapper; source=@g, match=\"(.*)gif\", transform=\"\\\\1jpg\">;",
            "f",
            "pic.jpg",
        ),
        (
            "file g[] <fixed_array_mapper; files=\"a.gif b.gif\">; file f[] <structured_regexp_mapper; source=g, match=\"(.*)gif\", transform=\"\\\\1jpg\">;",
            "f[1]",
            "b.jpg",
        ),
        (concat!("file f <\"file:", "//localhost/l.txt\">;"), "f", "l.txt"),
    ] {
        let script = format!("type file; app (file o) t() {{ touch @o; }} {declaration} {used} = t();");
        let lines = tasks(&script);
        assert_eq!(lines.last().unwrap(), &format!("t_0: touch|{expect} [ -> {expect}]"), "{script}");
    }
}

#[test]
fn files_without_names_and_files_elsewhere() {
    let lines =
        tasks(&format!("{CAT} file a[]; a[0] = make(1); a[1] = make(2); file b <\"../b\">; b = cat(a);"));
    assert_eq!(
        lines[2],
        "cat_0: $ cat _concurrent/a-0.0 _concurrent/a-1.0 > __parent__/b [_concurrent/a-0.0 _concurrent/a-1.0 -> ../b]"
    );
    let lines = tasks("app (file o) c(file i) { c @i @o; } file i <\"/etc/fstab\">; file o <\"o\"> = c(i);");
    assert_eq!(lines, ["c_0: c|__root__/etc/fstab|o [/etc/fstab -> o]"]);
}

#[test]
fn what_orders_tasks_without_files() {
    let script = "app (external o) a() { a; } app b(external i) { b; } external s; b(s); s = a();";
    assert_eq!(tasks(script), ["a_0: a [ -> ]", "b_0: b [ -> ] after 0"]);
}

#[test]
fn a_file_that_is_assigned_to_a_named_file_is_copied() {
    let script = format!("{CAT} file a = make(1); file b <\"b\">; b = a;");
    assert_eq!(tasks(&script)[1], "copy_0: cp|--|_concurrent/a.0|b [_concurrent/a.0 -> b]");
}

#[test]
fn words_of_commands() {
    let script = "app (file o) e(string s[], file i) { \"my prog\" \"-a b\" s[0] (1+2) s[*] -5 @strcat(\"x\", s[1]) @i stdin=@i stdout=@o; }
        string s[] = [\"p\", \"q'r\"]; file i <\"in put\">; file o <\"o\"> = e(s, i);";
    assert_eq!(
        tasks(script),
        [r"e_0: $ 'my prog' '-a b' p 3 p 'q'\''r' -5 'xq'\''r' 'in put' < 'in put' > o [in put -> o]"]
    );
    let two = "app (file o) e() { a; b stdout=@o; } file o <\"o\"> = e();";
    assert_eq!(tasks(two), ["e_0: $ a && b > o [ -> o]"]);
    assert_eq!(tasks("(file o) e() { app { a @o; } } file o <\"o\"> = e();"), ["e_0: a|o [ -> o]"]);
}

#[test]
fn files_that_are_there_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("ints", "1\n5\n9\n");
    write("rows", "x y name\n10 1.5 a\n20 2 b\n");
    write("places", "rows[0].columns[0] = 3\nrows[1].columns[0] = 4\n");
    write("in.2.txt", "");
    write("in.10.txt", "");
    write("table", "l,r\na1,b1\na2,b2\n");
    write("defs.swift", "int k = 4; type file;");
    let run = |script: &str| unfold_in(script, &[], Some(dir.path())).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(run("int a[] = readData(\"ints\"); trace(a[2]);").1, "9\n");
    assert_eq!(run("file f <\"ints\">; int a[] = readData(f); trace(length(a));").1, "3\n");
    assert_eq!(
        run("type r { int x; float y; string name; } r a[] = readData(\"rows\"); trace(a[1].name, a[0].y);")
            .1,
        "b, 1.5\n"
    );
    assert_eq!(run("type v { int columns[]; } type m { v rows[]; } m a = readStructured(\"places\"); trace(a.rows[1].columns[0]);").1, "4\n");
    assert_eq!(run("import \"defs\"; trace(k);").1, "4\n");
    assert_eq!(
        run(
            "file f[] <filesys_mapper; prefix=\"in.\", suffix=\".txt\">; foreach x, i in f { trace(i, @x); }"
        )
        .1,
        "0, in.2.txt\n1, in.10.txt\n"
    );
    let odd = |name: &[u8]| dir.path().join("odd").join(std::ffi::OsStr::from_bytes(name));
    std::fs::create_dir_all(odd(b"folder.txt")).unwrap();
    std::fs::write(odd(b"good.txt"), "").unwrap();
    std::fs::write(odd(b"bad\xff.txt"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", odd(b"link.txt")).unwrap();
    let (_, printed) = run("file f[] <filesys_mapper; pattern=\"odd/*.txt\">; foreach x in f { trace(@x); }");
    assert!(printed.ends_with("odd/good.txt\n") && !printed.contains("folder"), "{printed}");
    assert!(printed.contains("txt`: its name is not UTF-8"), "{printed}");
    assert!(printed.contains("odd/link.txt`: it is a symbolic link that leads nowhere"), "{printed}");
    assert_eq!(
        run("file f[] <simple_mapper; prefix=\"in.\", suffix=\".txt\", padding=0>; trace(@f[10]);").1,
        "in.10.txt\n"
    );
    assert_eq!(
        run("type c { file l; file r; } c f[] <csv_mapper; file=\"table\">; trace(@f[1].r);").1,
        "b2\n"
    );
    // Two that import each other, and one that imports itself, are read once each.
    let own = "import \"script\"; import \"other\"; trace(k);";
    write("other.swift", "import \"script\"; import \"other\"; int k = 5; trace(\"once\");");
    write("script.swift", own);
    let printed = run(own).1;
    assert_eq!((printed.matches("once").count(), printed.matches("5").count()), (1, 1), "{printed}");
    // A file of that name with another text is another script.
    write("script.swift", "trace(\"another\");");
    assert!(run("import \"script\"; trace(1);").1.contains("another"));
    let e = unfold_in("import \"nothing\";", &[], Some(dir.path())).unwrap_err().to_string();
    assert!(e.contains("line 1, column 8") && e.contains("nothing.swift"), "{e}");
    write("bad.swift", "int i = ;");
    let e = unfold_in("import \"bad\";", &[], Some(dir.path())).unwrap_err().to_string();
    assert!(e.contains("bad.swift, line 1, column 9: `;` stands where a value is expected"), "{e}");
}

#[test]
fn what_a_task_writes_decides_nothing() {
    let script = format!("{CAT} file a <\"a\"> = make(1);\nint i = readData(a);");
    let e = refused(&script);
    assert!(e.contains("line 4, column 9") && e.contains("reads `a`, which a task of line 3 writes"), "{e}");
}

#[test]
fn data_is_written_by_a_task() {
    assert_eq!(
        tasks("string s[] = [\"a\", \"b c\"]; file f <\"f\">; f = writeData(s);"),
        ["writeData_0: $ printf %s 'a\nb c\n' > f [ -> f]"]
    );
}

#[test]
fn mistakes_have_places_and_sentences() {
    for (script, expect) in [
        ("int i = 1;\n  i = 2;", "line 2, column 3: `i` is assigned here and on line 1"),
        ("int a[]; a[1] = 1;\na[1] = 2;", "line 2, column 1: `a[1]` is assigned here and on line 1"),
        (
            "app (file o) t() { t @o; }\nfile f <\"f\">;\nf = t();\nf = t();",
            "line 4, column 5: `f` is assigned here and by the task of the call on line 3",
        ),
        ("int i; trace(i);", "line 1, column 8: `i` is read and never assigned"),
        ("int a[]; trace(a[2]);", "line 1, column 17: `a[2]` is read and never assigned"),
        ("int i = j;", "line 1, column 9: `j` is not declared"),
        ("int i = \"a\";", "`i` is an int, and this value is a string"),
        ("x y; ", "line 1, column 1: the type `x` is not declared"),
        ("int i = foo(1);", "line 1, column 9: `foo` is no procedure of the script and no function"),
        ("trace(strcatt(1));", "is it `strcat`?"),
        ("int i = 1", "line 1, column 10: the end of the script stands where `;` is expected"),
        ("trace(1));", "line 1, column 9: `)` stands where `;` is expected"),
        ("string s = \"a", "line 1, column 12: the text that begins here has no end"),
        ("/* a", "the comment that begins here has no end"),
        ("int i = 1 ~ 2;", "line 1, column 11: `~` means nothing here"),
        ("f(int a) { trace(a); } f();", "the input `a` of `f` is not given"),
        ("f(int a) { trace(a); } f(1, 2);", "`f` has 1 inputs, and more are given"),
        ("f(int a) { trace(a); } f(\"x\");", "the input `a` is an int, and this value is a string"),
        ("f(int a) { f(a); } f(1);", "calls are nested more than 1000 deep"),
        ("type a { b x; } type b { a y; }", "contains itself"),
        ("int a = b; int b = a;", "waits for something that waits for it"),
        ("file f <nice_mapper; x=1>;", "the mapper `nice_mapper` is not known"),
        ("file f <single_file_mapper; fil=\"a\">;", "has no parameter called `fil`"),
        ("file f <ext; exec=\"m.sh\">;", "would run `m.sh` here and now"),
        ("int i <\"f\">;", "`i` is an int, and only files are mapped"),
        ("string s = arg(\"x\");", "give it behind the script: -- -x=VALUE"),
        ("int i = 1 %/ 0;", "this divides by 0"),
        ("int i = 9223372036854775807 + 1;", "too large for an int"),
        ("foreach i in 3 { trace(i); }", "`foreach` goes over an array, and this is an int"),
        ("int n = 1; f() { trace(n); } f();", "procedures see `n` if its declaration begins with `global`"),
        ("app (file o) t() { t @o; } file f[]; f = t();", "this value is a file"),
        ("app (file o[]) t() { t; } file f[]; f = t();", "are known only when the task has written them"),
        ("iterate i { int j = 1; } until (false);", "more than"),
        ("foreach i in [1:999999999] { int j = 1; }", "more than"),
        ("int i; int i;", "`i` is declared here and on line 1"),
        ("assert(1 > 2, \"no\");", "the script's assertion fails: `no`"),
        ("java(\"java.lang.Math\", \"abs\", 1);", "eyas has no Java"),
    ] {
        let e = refused(script);
        assert!(e.contains(expect), "{script}\n{e}");
    }
}

#[test]
fn scripts_with_mistakes_anywhere_do_no_harm() {
    let script = format!(
        "{CAT} type p {{ int x; file f; }}\nfile all <simple_mapper; prefix=\"a\">; file parts[]; p q[]; all = cat(parts);
        foreach i, k in [0:2] {{ parts[i] = make(i * 2); q[k].x = i; if (i == 1) {{ tracef(\"%s %i\\n\", \"a\", i); }} else {{ trace(@parts); }} }}
        (int r) f(int a, string s = \"x\") {{ r = a + length(s); }} int z = f(1); string w[] = strsplit(\"a b\", \" \");
        iterate n {{ int m = n; }} until (m > 2); switch (z) {{ case 2: trace(w[0]); default: trace(q[0].x); }}"
    );
    let tokens: Vec<String> = {
        let mut all: Vec<String> = vec![];
        for word in script.split_inclusive(|c: char| !c.is_alphanumeric()) {
            all.push(word.into());
        }
        all
    };
    // Each word is left out once, doubled once, and changes place with its neighbour once.
    for n in 0..tokens.len() {
        for kind in 0..3 {
            let mut changed = tokens.clone();
            match kind {
                0 => drop(changed.remove(n)),
                1 => changed.insert(n, tokens[n].clone()),
                _ if n + 1 < tokens.len() => changed.swap(n, n + 1),
                _ => {}
            }
            let text = changed.concat();
            if let Err(e) = crate::parse(Format::Swift, &text, "s", None) {
                assert!(!e.message.is_empty());
            }
        }
    }
}

#[test]
fn a_script_reads_no_file_without_an_end() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["zero", "zero.swift"] {
        std::os::unix::fs::symlink("/dev/zero", dir.path().join(name)).unwrap();
    }
    for script in [
        "string s = readData(\"zero\"); trace(s);",
        "type file; file f[] <csv_mapper; file=\"zero\">; trace(length(f));",
        "import \"zero\"; trace(1);",
    ] {
        let refused = unfold_in(script, &[], Some(dir.path())).unwrap_err().to_string();
        assert!(refused.contains("it is a directory, a pipe or a device"), "{refused}");
    }
}
