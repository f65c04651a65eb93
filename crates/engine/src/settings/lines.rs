//! `http-log`, `tls-log`, `syslog`, `alert-debug`, `tcp-data` and `http-body-data`: outputs of text.

use margay_config::ConfigError;
use margay_output::alert_debug::AlertDebugSettings;
use margay_output::data_log::{DataKind, DataLogSettings};
use margay_output::fast::SyslogSettings;
use margay_output::lines::{Format, LineKind, LineLogSettings};
use margay_output::settings::{SYSLOG_SOCKET, SinkKind, SinkSettings};

use super::outputs::{Reading, Specs, regular, sink, syslog};

/// Reads `syslog`.
///
/// # Errors
/// An unknown facility or level.
pub(super) fn read_syslog(r: &Reading<'_>, specs: &mut Specs) -> Result<(), ConfigError> {
    let mut sink = SinkSettings { kind: SinkKind::Syslog, ..SinkSettings::file(SYSLOG_SOCKET) };
    syslog(r.node, &mut sink)?;
    specs.outputs.push(Box::new(SyslogSettings { sink }));
    Ok(())
}

/// Reads `alert-debug`.
///
/// # Errors
/// An invalid value.
pub(super) fn read_alert_debug(r: &Reading<'_>, specs: &mut Specs) -> Result<(), ConfigError> {
    specs.outputs.push(Box::new(AlertDebugSettings { sink: sink(r.node, r.dir, "alert-debug.log")? }));
    Ok(())
}

/// Reads `tcp-data` or `http-body-data`.
///
/// # Errors
/// An invalid value.
pub(super) fn read_data(r: &Reading<'_>, specs: &mut Specs, kind: DataKind) -> Result<(), ConfigError> {
    let (file, dir) = match r.node.get("type") {
        None | Some("" | "file") => (true, false),
        Some("dir") => (false, true),
        Some("both") => (true, true),
        Some(other) => {
            let at = r.node.node("type").unwrap_or(r.node);
            return Err(at.error(format!("type: \"{other}\" is none of file, dir and both")));
        }
    };
    let default = match kind {
        DataKind::Tcp => "tcp-data.log",
        DataKind::HttpBody => "http-data.log",
    };
    let sink = regular(r.node, r.dir, default)?;
    specs.outputs.push(Box::new(DataLogSettings {
        kind,
        sink: file.then_some(sink),
        dir: dir.then(|| r.dir.to_owned()),
    }));
    Ok(())
}

/// Reads `http-log` or `tls-log`.
///
/// # Errors
/// An invalid value.
pub(super) fn read(r: &Reading<'_>, specs: &mut Specs, kind: LineKind) -> Result<(), ConfigError> {
    let default = match kind {
        LineKind::Http => "http.log",
        LineKind::Tls => "tls.log",
    };
    let mut format = None;
    if r.node.bool("custom")?.unwrap_or(false)
        && let Some(text) = r.node.get("customformat")
    {
        format = Some(Format::parse(text).map_err(|e| r.node.node("customformat").unwrap_or(r.node).error(e))?);
    }
    specs.outputs.push(Box::new(LineLogSettings {
        sink: sink(r.node, r.dir, default)?,
        kind,
        extended: r.node.bool("extended")?.unwrap_or(false),
        resumed: kind != LineKind::Tls || r.node.bool("session-resumption")?.unwrap_or(true),
        format,
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use margay_config::Config;

    use super::*;

    fn of(text: &str) -> Result<Specs, ConfigError> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t")?;
        crate::settings::outputs::outputs(&config, Path::new("logs"))
    }

    #[test]
    fn data_logs() {
        let text = "outputs:\n  - tcp-data: {enabled: yes, type: both, filename: a, append: no}\n  - http-body-data: \
                    {enabled: yes, type: dir}\n  - tcp-data: {enabled: yes}\n";
        let s = of(text).unwrap();
        let logs: Vec<&DataLogSettings> =
            s.outputs.iter().filter_map(|o| (&**o as &dyn std::any::Any).downcast_ref()).collect();
        let [both, dir, file] = logs[..] else { panic!("{}", logs.len()) };
        let sink = both.sink.as_ref().unwrap();
        assert_eq!((&*sink.path, sink.append, sink.kind), (Path::new("logs/a"), false, SinkKind::Regular));
        assert_eq!(both.dir.as_deref(), Some(Path::new("logs")));
        assert!(dir.sink.is_none() && dir.kind == DataKind::HttpBody && dir.dir.is_some());
        assert!(file.dir.is_none() && file.sink.as_ref().is_some_and(|s| s.path == Path::new("logs/tcp-data.log")));
        assert!(of("outputs:\n  - tcp-data: {enabled: yes, type: folder}\n").is_err());
    }

    #[test]
    fn line_logs() {
        let text = "outputs:\n  - http-log: {enabled: yes, extended: yes, custom: no, customformat: '%h'}\n  - tls-log: {enabled: yes, filename: a, \
             custom: yes, customformat: '%n', session-resumption: no}\n  - syslog: {enabled: yes, facility: local5}\n";
        let s = of(text).unwrap();
        let lines: Vec<&LineLogSettings> =
            s.outputs.iter().filter_map(|o| (&**o as &dyn std::any::Any).downcast_ref()).collect();
        let [http, tls] = lines[..] else { panic!("{}", lines.len()) };
        assert_eq!((http.kind, http.extended, http.format.is_some()), (LineKind::Http, true, false));
        assert_eq!((&*http.sink.path, &*tls.sink.path), (Path::new("logs/http.log"), Path::new("logs/a")));
        assert_eq!((tls.kind, tls.resumed, tls.format.is_some()), (LineKind::Tls, false, true));
        assert_eq!(s.outputs[2].name(), "syslog");
        let e = of("outputs:\n  - http-log: {enabled: yes, custom: yes, customformat: '%{a'}\n").unwrap_err();
        assert!(e.to_string().contains("braces"), "{e}");
    }
}
