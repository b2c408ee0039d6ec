//! A small file cannot stand for all memory, in whatever way its format lets text stand for more text.

use eyas_workflow::{Format, Options, parse, to_list};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that the tests of this file hold, all together.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The error of a file that stands for too much. The memory held meanwhile has to stay below a gigabyte.
fn refused(format: Format, text: &str) -> String {
    let result = parse(format, text, "w", None).map_err(|e| e.to_string()).and_then(|workflow| {
        let options = Options { check_inputs: false, ..Options::beside("/d/w".as_ref()) };
        to_list(&workflow, &options).map_err(|e| e.to_string())
    });
    let most = MOST.load(Ordering::Relaxed);
    assert!(most < 1 << 30, "{} MiB were held", most >> 20);
    match result {
        Ok(list) => panic!("{} tasks were taken", list.n_tasks),
        Err(error) => error,
    }
}

fn lines(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).map(line).collect()
}

/// The cases run one after the other, so that the memory counted is that of one case.
#[test]
fn what_stands_for_too_much_is_refused_with_its_place() {
    let v = |i: usize| format!("$(V{i})");
    // Each variable is four times the one before.
    let doubling = lines(40, |i| match i {
        0 => "V0=xxxxxxxxxx\n".into(),
        i => format!("V{i}={}\n", v(i - 1).repeat(4)),
    });
    let error = refused(Format::Makeflow, &format!("{doubling}a: b\n\tcp $(V39) a\n"));
    assert_eq!(error, "line 11: with what variables stand for, this is longer than 4 MiB");

    // The same with empty values: no text, and all the work.
    let lazy = lines(40, |i| match i {
        0 => "V0=\n".into(),
        i => format!("V{i}={}\n", v(i - 1).replace('$', "\\$").repeat(4)),
    });
    let error = refused(Format::Makeflow, &format!("{lazy}a: b\n\tcp $(V25) a\n"));
    assert!(error.starts_with("line 42: variables stand for more than 128 MiB of text"), "{error}");

    // The category that all rules have in common is long.
    let long = "x".repeat(500_000);
    let rules = lines(2_000, |i| format!("o{i}:\n\ttrue\n"));
    for head in [format!("CATEGORY={long}\n"), format!("V={long}\nexport V\n")] {
        let error = refused(Format::Makeflow, &format!("{head}{rules}"));
        assert!(
            error.contains("MiB of text, which is more than a file of this size may stand for"),
            "{error}"
        );
    }

    // Every rule has a list of files.
    let files = "a ".repeat(200_000);
    let error = refused(
        Format::Makeflow,
        &format!("V={files}\n{}", lines(2_000, |i| format!("o{i}: $(V)\n\ttrue\n"))),
    );
    assert!(error.contains("MiB of text"), "{error}");

    let laughs = lines(12, |i| match i {
        0 => format!("a0: &a0 {}\n", "x".repeat(1000)),
        i => format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(",")),
    });
    let error = refused(Format::Pegasus, &format!("pegasus: '5.0'\n{laughs}jobs: []\n"));
    assert_eq!(
        error,
        "line 7: aliases stand for more than 128 MiB of text, which is more than a file of this size may stand for"
    );
    let one = format!("pegasus: '5.0'\nx: &x {long}\ny:\n{}", "- *x\n".repeat(10_000));
    assert!(refused(Format::Pegasus, &one).contains("aliases stand for"));

    // The location of a program is repeated in every job.
    let jobs = lines(5_000, |i| format!("- {{id: j{i}, name: p}}\n"));
    let catalog = format!(
        "transformationCatalog:\n  transformations:\n  - {{name: p, sites: [{{name: s, pfn: /{long}}}]}}\n"
    );
    let error = refused(Format::Pegasus, &format!("pegasus: '5.0'\n{catalog}jobs:\n{jobs}"));
    assert!(error.contains("the tasks up to here have more than"), "{error}");
    let jobs = lines(5_000, |i| format!("<job id='j{i}' name='p'/>\n"));
    let error = refused(
        Format::Dax,
        &format!("<adag>\n<executable name='p'><pfn url='/{long}'/></executable>\n{jobs}</adag>\n"),
    );
    assert!(error.starts_with("line ") && error.contains("the tasks up to here have more than"), "{error}");

    // The location of a file is repeated in every job that reads it.
    let jobs = lines(5_000, |i| format!("<job id='j{i}' name='p'><uses name='f'/></job>\n"));
    let error =
        refused(Format::Dax, &format!("<adag>\n<file name='f'><pfn url='/{long}'/></file>\n{jobs}</adag>\n"));
    assert!(error.contains("the files that the tasks name have more than"), "{error}");

    // The file is nested deep and not long.
    let deep = "[".repeat(1_000_000);
    assert!(refused(Format::WfFormat, &deep).contains("line 1"));
    let error = refused(Format::Pegasus, &format!("jobs: {deep}"));
    assert!(error.contains("deep"), "{error}");
    assert!(!refused(Format::Dax, &format!("<adag>{}", "<a>".repeat(100_000))).is_empty());
}

#[test]
fn entities_are_named_as_what_they_are() {
    let bomb = "<?xml version=\"1.0\"?>\n<!-- a comment --><!DOCTYPE adag [\n<!-- <!ENTITY no \"x\"> -->\n\
                <!ENTITY a \"xxxxxxxxxx\">\n<!ENTITY b \"&a;&a;&a;\">\n]>\n<adag><job id=\"&b;\" name=\"p\"/></adag>\n";
    let error = parse(Format::Dax, bomb, "w", None).err().unwrap().to_string();
    assert_eq!(
        error,
        "line 4: the file defines entities, which eyas does not expand: a few lines of them can stand for more text \
         than there is memory\nhint: write out what they stand for, for instance with `xmllint --noent`"
    );
    // Old files refer to a DTD outside, or define other things in their own; comments may contain any text.
    for head in [
        "",
        "<!DOCTYPE adag SYSTEM \"http://pegasus.isi.edu/dax.dtd\">",
        "<!DOCTYPE adag PUBLIC \"[<!ENTITY\" 'x'>",
        "<!DOCTYPE adag [\n<!-- <!ENTITY -->\n<!ELEMENT job ANY>\n]>",
        "<!-- <!DOCTYPE adag [<!ENTITY a 'x'>]> -->",
    ] {
        let text = format!("{head}<adag><!-- <!ENTITY --><job id=\"a\" name=\"p\"/></adag>\n");
        assert_eq!(
            parse(Format::Dax, &text, "w", None).map(|w| w.tasks.len()).map_err(|e| e.to_string()),
            Ok(1),
            "{head}"
        );
    }
}
