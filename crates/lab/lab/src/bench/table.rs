//! A table of figures, for people and for programs.

use eyas_cli::machine::Machine;
use serde::Serialize;

#[derive(Serialize)]
pub struct Table {
    title: String,
    rows: Vec<Row>,
    notes: Vec<String>,
    /// What programs may want beside the rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<serde_json::Value>,
}

/// One figure and the reference that it is compared with.
#[derive(Serialize)]
pub struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    /// The reference is taken in the same run.
    reference: Option<Reference>,
    /// `value` divided by the reference's value.
    ratio: Option<f64>,
    /// The target that must be reached, and the one that is hoped for.
    target: Option<(&'static str, &'static str)>,
    /// What the paper says of the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    paper: Option<&'static str>,
}

#[derive(Serialize)]
struct Reference {
    what: &'static str,
    value: f64,
}

impl Row {
    pub fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Row {
        Row { what: what.into(), value, unit, reference: None, ratio: None, target: None, paper: None }
    }

    /// Compares with a figure of the same unit. A reference of 0 gives no ratio, as for a stage that took
    /// no time of its own.
    pub fn against(mut self, what: &'static str, value: f64) -> Row {
        self.ratio = Some(self.value / value).filter(|ratio| ratio.is_finite());
        self.reference = Some(Reference { what, value });
        self
    }

    /// As [`Self::against`], for a ratio that is a median of ratios.
    pub fn against_by(mut self, what: &'static str, value: f64, ratio: f64) -> Row {
        self.reference = Some(Reference { what, value });
        self.ratio = Some(ratio);
        self
    }

    pub fn target(mut self, must: &'static str, aim: &'static str) -> Row {
        self.target = Some((must, aim));
        self
    }

    /// In place of a target: what a paper says of the ratio, or of the value if there is no ratio.
    pub fn paper(mut self, said: &'static str) -> Row {
        self.paper = Some(said);
        self
    }

    fn cells(&self) -> [String; 5] {
        [
            self.what.clone(),
            with_unit(self.value, self.unit),
            self.reference
                .as_ref()
                .map_or(String::new(), |r| format!("{} {}", r.what, with_unit(r.value, self.unit))),
            self.ratio.map_or(String::new(), |r| format!("{r:.2}")),
            match (self.target, self.paper) {
                (Some((must, aim)), _) => format!("{must}; {aim}"),
                (None, Some(said)) => format!("paper: {said}"),
                (None, None) => String::new(),
            },
        ]
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    if unit.is_empty() { figure(value) } else { format!("{} {unit}", figure(value)) }
}

/// `value` with three significant digits.
fn figure(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "?".into(),
        v if v >= 999.5 => eyas_cli::print::count(value.round() as u64),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        0.0 => "0".into(),
        _ => format!("{value:.2}"),
    }
}

const HEADS: [&str; 5] = ["what", "measured", "reference", "ratio", "must; aim"];

impl Table {
    pub fn new(title: impl Into<String>) -> Table {
        Table { title: title.into(), rows: vec![], notes: vec![], details: None }
    }

    pub fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub fn details(&mut self, details: serde_json::Value) {
        self.details = Some(details);
    }

    pub fn text(&self) -> String {
        let mut lines = vec![HEADS.map(String::from)];
        lines.extend(self.rows.iter().map(Row::cells));
        let width = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        let mut text = format!("{}\n\n", self.title);
        for (n, cells) in lines.iter().enumerate() {
            let [what, value, reference, ratio, target] = cells;
            let [w0, w1, w2, w3, _] = widths;
            let line = format!("{what:<w0$}  {value:>w1$}  {reference:<w2$}  {ratio:>w3$}  {target}");
            text += line.trim_end();
            text.push('\n');
            if n == 0 {
                text += &"-".repeat(widths.iter().sum::<usize>() + 8);
                text.push('\n');
            }
        }
        for note in &self.notes {
            text += &format!("\n{note}\n");
        }
        text
    }

    pub fn json(&self, machine: &Machine) -> serde_json::Value {
        serde_json::json!({ "eyas_bench": 1, "machine": machine, "table": self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let expect = [
            (0.0, "0"),
            (0.123, "0.12"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.5, "1,235"),
            (f64::NAN, "?"),
        ];
        for (value, text) in expect {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn columns_stay_aligned_when_cells_are_empty() {
        let mut table = Table::new("T");
        table.row(Row::new("a", 10.0, "/s").against("bare", 20.0).target("70 %", "90 %"));
        table.row(Row::new("longer", 1.0, ""));
        table.row(Row::new("none", 0.0, "s").against("first", 0.0));
        assert_eq!(
            table.text(),
            "T\n\n\
             what    measured  reference     ratio  must; aim\n\
             -------------------------------------------------\n\
             a        10.0 /s  bare 20.0 /s   0.50  70 %; 90 %\n\
             longer      1.00\n\
             none         0 s  first 0 s\n"
        );
    }
}
