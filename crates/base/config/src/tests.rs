use super::*;
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../../docs/reference/eyas-toml.schema.json");
const PAGE: &str = include_str!("../../../../docs/reference/eyas-toml.md");

fn parsed(text: &str) -> Result<Config, String> {
    parse(Path::new("/at/eyas.toml"), text).map_err(|wrong| wrong.to_string())
}

fn wrong(text: &str) -> String {
    parsed(text).expect_err("something is wrong with it")
}

#[test]
fn a_profile_has_its_settings_in_the_order_of_the_file_with_paths_from_the_folder_of_the_file() {
    let text = "# c\n[profile.big]\nslots = 4\nnodes = \"0..20\"\nutilisation-threshold = 0.9\n\
                home-local = [\"ref\", \"/abs\"]\nno-event-log = true\ndir = \"c\"\n\n[profile.\"s m\"]\nwindow = 1_000\n\
                no-event-log = false\n";
    let config = parsed(text).unwrap();
    let shown = |profile: &Profile| -> Vec<(usize, &str, String)> {
        profile.settings.iter().map(|s| (s.line, s.key.name, s.values.join("|"))).collect()
    };
    let [big, small] = &config.profiles[..] else { panic!("{config:?}") };
    assert_eq!((big.name.as_str(), big.line, small.name.as_str(), small.line), ("big", 2, "s m", 10));
    assert_eq!(
        shown(big),
        [
            (3, "slots", "4".into()),
            (4, "nodes", "0..20".into()),
            (5, "utilisation-threshold", "0.9".into()),
            (6, "home-local", "/at/ref|/abs".into()),
            (7, "no-event-log", String::new()),
            (8, "dir", "/at/c".into()),
        ]
    );
    assert_eq!(shown(small), [(11, "window", "1000".into()), (12, "no-event-log", String::new())]);
    assert_eq!((big.settings[4].values.len(), small.settings[1].values.len()), (1, 0), "set, and not set");
}

#[test]
fn a_table_gives_its_values_as_json() {
    let text = "[profile.a]\noptions = { qos = \"long\", n = 0x10, f = 1.5 }\n[profile.b.options]\n\
                claims = [[\"data\", \"/data\"]]\nexclusive = false\n";
    let config = parsed(text).unwrap();
    let values = |i: usize| config.profiles[i].settings[0].values.join(" ");
    assert_eq!(values(0), r#"f=1.5 n=16 qos="long""#);
    assert_eq!(values(1), r#"claims=[["data","/data"]] exclusive=false"#);
    assert!(wrong("[profile.a]\noptions = 3\n").contains("wants a section of names with values"));
    assert!(wrong("[profile.a]\noptions = { d = 2026-01-01 }\n").contains("wants values that are no dates"));
}

#[test]
fn all_that_is_wrong_is_said_at_once_with_its_line_and_the_nearest_key() {
    let text = "nodes = 3\n[profile.a]\nslot = 4\nslots = [1]\nno-event-log = 1\nhome-local = [1]\ndir = 3\nslots2x = 1\n\
                setup = [3]\n\
                [profiles.b]\n[profile]\nx = 1\n";
    assert_eq!(
        wrong(text).lines().collect::<Vec<_>>(),
        [
            "`/at/eyas.toml`, line 1: an unknown section `nodes`",
            "hint: a profile is a section [profile.NAME], a home [home.NAME], and a rule for disks of nodes [[home-on]]; there is nothing else at the top",
            "`/at/eyas.toml`, line 3: an unknown key `slot`",
            "hint: did you mean `slots`?",
            "`/at/eyas.toml`, line 4: `slots` is a list, and wants a text in quotes, or a number",
            "`/at/eyas.toml`, line 5: `no-event-log` is a number, and wants true or false",
            "`/at/eyas.toml`, line 6: `home-local` is a list, and wants a list of paths in quotes",
            "`/at/eyas.toml`, line 7: `dir` is a number, and wants a path in quotes",
            "`/at/eyas.toml`, line 8: an unknown key `slots2x`",
            "hint: did you mean `slots`?",
            "`/at/eyas.toml`, line 9: `setup` is a list, and wants a list of texts in quotes",
            "`/at/eyas.toml`, line 10: an unknown section `profiles`",
            "hint: a profile is a section [profile.NAME], a home [home.NAME], and a rule for disks of nodes [[home-on]]; there is nothing else at the top",
            "`/at/eyas.toml`, line 12: `x` stands outside of a profile",
            "hint: a profile is a section [profile.NAME]",
        ]
    );
    let far = wrong("[profile.a]\nzzzzzz = 1\n");
    assert!(far.contains("hint: keys are nodes, provisioning, "), "{far}");
}

#[test]
fn what_is_no_toml_is_said_with_its_line_alone() {
    let said = wrong("[profile.a]\nslots = 4\nnodes = \nslot = 3\n");
    assert!(said.starts_with("`/at/eyas.toml`, line 3: "), "{said}");
    assert!(!said.contains("unknown key"), "what follows a mistake is not blamed: {said}");
    assert!(wrong("[profile.a]\nslots = 1\nslots = 2\n").contains("line 3: duplicate key"));
}

#[test]
fn the_working_folder_comes_before_the_users_and_both_are_named_when_neither_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let (here, home) = (dir.path().join("here"), dir.path().join("home"));
    std::fs::create_dir_all(home.join("eyas")).unwrap();
    std::fs::create_dir(&here).unwrap();
    let places = places(&here, Some(&home));
    let said = |name: &str| find_profile(&places, name).map(|(path, _)| path).map_err(|e| e.to_string());
    let (first, second) = (&places[0], &places[1]);
    assert_eq!(
        said("a").unwrap_err(),
        format!("there is no profile `a`: there is no {}, and no {}", shown_path(first), shown_path(second))
    );
    std::fs::write(second, "[profile.alpha]\n[profile.b]\n").unwrap();
    assert_eq!(said("alpha").as_ref(), Ok(second));
    std::fs::write(first, "[profile.alpha]\n").unwrap();
    assert_eq!(said("alpha").as_ref(), Ok(first));
    assert_eq!(said("b").as_ref(), Ok(second), "what only the user's file has is found, too");
    assert_eq!(
        said("alpa").unwrap_err(),
        format!(
            "there is no profile `alpa` in {} or {}\nhint: did you mean `alpha`?",
            shown_path(first),
            shown_path(second)
        )
    );
    // A file with a mistake is not passed over in silence.
    std::fs::write(first, "[profile.alpha]\nslot = 1\n").unwrap();
    assert!(said("b").unwrap_err().contains("unknown key `slot`"));
}

/// The schema, the page and the reader have the same keys, and the schema wants the same kinds of values.
#[test]
fn the_schema_and_the_reference_page_have_all_keys() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let profile = schema.pointer("/$defs/profile").unwrap();
    assert_eq!(profile["additionalProperties"], Value::Bool(false));
    let properties = profile["properties"].as_object().unwrap();
    let mut in_schema: Vec<&str> = properties.keys().map(String::as_str).collect();
    let mut in_code: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    let in_page: Vec<&str> =
        PAGE.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)).collect();
    assert_eq!(in_page, in_code);
    in_schema.sort_unstable();
    in_code.sort_unstable();
    assert_eq!(in_schema, in_code);
    for key in KEYS {
        let of = &properties[key.name];
        assert!(of["description"].is_string(), "{}", key.name);
        let wants = match key.kind {
            Kind::Switch => of["type"] == "boolean",
            Kind::Path => of["type"] == "string",
            Kind::Table => of["type"] == "object",
            Kind::Paths | Kind::Texts => of["$ref"] == "#/$defs/texts",
            Kind::Value => of["$ref"] == "#/$defs/value" || of["type"] == "string" || of["enum"].is_array(),
        };
        assert!(wants, "{}: {of}", key.name);
    }
}

#[test]
fn what_could_be_read_is_there_beside_what_is_wrong_and_each_mistake_has_its_own_line() {
    let text = "[profile.a]\nslots = [1]\ncache = \"0\"\n\n[profile.b]\nwindow = 0\nwindow = 1\n";
    let wrong = parse(Path::new("/at/eyas.toml"), text).unwrap_err();
    let lines: Vec<usize> = wrong.complaints.iter().map(|complaint| complaint.line).collect();
    assert_eq!(lines, [7], "{wrong}");
    let text = text.replace("window = 1\n", "");
    let wrong = parse(Path::new("/at/eyas.toml"), &text).unwrap_err();
    let lines: Vec<usize> = wrong.complaints.iter().map(|complaint| complaint.line).collect();
    assert_eq!(lines, [2], "{wrong}");
    let read = wrong.profiles.iter().flat_map(|profile| &profile.settings);
    let read: Vec<(usize, &str)> = read.map(|setting| (setting.line, setting.key.name)).collect();
    assert_eq!(read, [(3, "cache"), (6, "window")]);
    for (text, line) in [
        ("[profile.a]\nslots = 1\n[profile.a]\n", 3),
        ("[profile.a]\n\nslots = 1 2\n", 3),
        ("[profile.a]\nslots = 1\n\n[profile.b\n", 4),
        ("[profile.a]\nx.y = 1\n\nz = \"\n", 4),
        ("\n\nprofile = 3\n", 3),
        ("[profile.a]\n\nslots.x = 1\n", 3),
    ] {
        let wrong = parse(Path::new("/at/eyas.toml"), text).unwrap_err();
        assert_eq!(wrong.complaints[0].line, line, "{text:?}: {wrong}");
    }
}

#[test]
fn rules_for_disks_are_read_and_what_is_wrong_elsewhere_takes_nothing_from_them() {
    let good = "[[home-on]]\nprefix = \"/data/a\"\nhosts = [\"n1\", \"n2\"]\n\n[[home-on]]\nprefix = \"/b\"\nhosts = \"n3\"\n";
    let rule = |line, prefix: &str, hosts: &[&str]| HomeOn {
        line,
        prefix: prefix.into(),
        hosts: hosts.iter().map(|host| host.to_string()).collect(),
    };
    let rules = [rule(1, "/data/a", &["n1", "n2"]), rule(5, "/b", &["n3"])];
    let read = |text: &str| parse(Path::new("/at/eyas.toml"), text);
    assert_eq!(read(good).unwrap().home_on, rules);
    let wrong = read(&format!("{good}[profile.a]\nslot = 1\n")).unwrap_err();
    assert_eq!(wrong.home_on.as_deref(), Some(&rules[..]));
    for (text, message) in [
        ("[home-on]\nprefix = \"/a\"\nhosts = [\"h\"]\n", "`home-on` is not a list of sections"),
        ("[[home-on]]\nprefix = \"a\"\nhosts = [\"h\"]\n", "`prefix` wants a directory as a whole path"),
        ("[[home-on]]\nprefix = \"/a\"\nhosts = []\n", "`hosts` wants a list of names"),
        ("[[home-on]]\nprefix = \"/a\"\n", "`home-on` needs `prefix` and `hosts`"),
        ("[[home-on]]\nprefix = \"/a\"\nhosts = [\"h\"]\nhost = 1\n", "an unknown key `host`"),
    ] {
        let wrong = read(text).unwrap_err();
        assert!(wrong.to_string().contains(message), "{text}: {wrong}");
        assert_eq!(wrong.home_on, None, "{text}");
    }
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let said = read(&path).unwrap_err().to_string();
    assert!(said.ends_with("eyas.toml`: it is no file"), "{said}");
}
