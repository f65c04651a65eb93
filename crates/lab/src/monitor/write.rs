//! Samples as text.

use std::io::{self, Write};

use clap::ValueEnum;

/// Format of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A header, then a line for each sample
    Csv,
    /// An object on a line for each sample
    Json,
}

/// Writes samples to `out`, one on each line, and flushes each.
pub(crate) struct Writer<W: Write> {
    out: W,
    format: Format,
    names: Vec<String>,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the header, if the format has one.
    ///
    /// # Errors
    /// Errors of `out`.
    pub(crate) fn new<'a>(out: W, format: Format, names: impl Iterator<Item = &'a str>) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, format, names: names.map(str::to_owned).collect(), line: Vec::new() };
        if format == Format::Csv {
            // Names of interfaces and disks may contain nearly any character.
            let quoted = writer.names.iter().map(|name| field(name)).collect::<Vec<_>>().join(",");
            writeln!(writer.out, "{quoted}")?;
        }
        Ok(writer)
    }

    /// Writes a sample with a value for each name.
    ///
    /// # Errors
    /// Errors of `out`.
    pub(crate) fn write(&mut self, values: &[f64]) -> io::Result<()> {
        self.line.clear();
        if self.format == Format::Json {
            self.line.push(b'{');
        }
        for (at, (name, value)) in self.names.iter().zip(values).enumerate() {
            if at > 0 {
                self.line.push(b',');
            }
            if self.format == Format::Json {
                serde_json::to_writer(&mut self.line, name)?;
                self.line.push(b':');
            }
            number(*value, self.format, &mut self.line)?;
        }
        self.line.extend_from_slice(if self.format == Format::Json { b"}\n" } else { b"\n" });
        self.out.write_all(&self.line)?;
        self.out.flush()
    }
}

/// A CSV field, quoted if necessary.
pub(crate) fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Writes a number with as few digits as possible: integers without a point, others to a millionth; nothing if unknown.
fn number(value: f64, format: Format, out: &mut Vec<u8>) -> io::Result<()> {
    if !value.is_finite() {
        if format == Format::Json {
            out.extend_from_slice(b"null");
        }
        return Ok(());
    }
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return write!(out, "{}", value as i64);
    }
    write!(out, "{value:.6}")?;
    while out.last() == Some(&b'0') {
        out.pop();
    }
    if out.last() == Some(&b'.') {
        out.pop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: Format) -> String {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, format, ["time", "a,b", "c"].into_iter()).unwrap();
        writer.write(&[1.5, f64::NAN, 3.0]).unwrap();
        writer.write(&[0.1234567, -2.0, 1e15]).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_has_a_header_and_leaves_out_what_is_not_known() {
        assert_eq!(text(Format::Csv), "time,\"a,b\",c\n1.5,,3\n0.123457,-2,1000000000000000\n");
    }

    #[test]
    fn json_is_an_object_a_line() {
        assert_eq!(
            text(Format::Json),
            "{\"time\":1.5,\"a,b\":null,\"c\":3}\n{\"time\":0.123457,\"a,b\":-2,\"c\":1000000000000000}\n"
        );
    }
}
