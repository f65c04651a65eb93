//! `fileinfo` events and records of stored files.

use margay_app::file::{FileLogOptions, log};
use margay_app::{AppConfig, AppLogOptions, LogFor, Shared, Transaction};
use margay_detect::Detect;
use margay_flow::Direction;
use margay_output::Outputs;
use margay_output::event::{AppEvent, EventType, Forwarded, Header, ONE_RECORD};

use super::app::AppStage;
use super::log::direction;
use super::scripts::{Occasion, OutputScripts, ScriptContext};

/// The first file of a transaction that is due for logging.
fn due(tx: &dyn Transaction, only: Option<Direction>) -> Option<usize> {
    let files = &tx.base().files;
    let way = |i: &usize| files.all().get(*i).map(|f| f.to_client);
    files.due_for_log().find(|i| only.is_none_or(|d| way(i) == Some(d == Direction::ToClient)))
}

impl AppStage {
    /// Does the pending work for a transaction's files, where `only` means the same as for [`AppStage::log_files`]. Returns
    /// whether any file must be logged.
    pub(super) fn files_due(&mut self, tx: &mut dyn Transaction, only: Option<Direction>) -> bool {
        let AppStage { config, shared, .. } = self;
        let (AppConfig { files: config, .. }, Shared { files: engine, .. }) = (&**config, shared);
        let files = &mut tx.base_mut().files;
        if only.is_none() {
            files.finish(engine, config);
        }
        files.flush(engine, config);
        due(tx, only).is_some()
    }

    /// Logs the complete files of a transaction: those in direction `only`, which detection has just inspected, or all files
    /// if the transaction gets no more data.
    ///
    /// `header` has the flow's addresses; a file is shown with the addresses of its own direction.
    pub(super) fn log_files(
        &mut self,
        outputs: &mut Outputs,
        header: &Header<'_>,
        app_proto: Option<&str>,
        tx: &mut dyn Transaction,
        only: Option<Direction>,
        (scripts, detect, context): (&mut OutputScripts, Option<&Detect>, ScriptContext<'_>),
    ) {
        let AppStage { config, shared, options, record, .. } = self;
        let (AppConfig { files: config, .. }, Shared { files: engine, .. }) = (&**config, shared);
        let records = config.store.as_ref().is_some_and(|s| s.write_fileinfo);
        loop {
            let Some(index) = due(tx, only) else { return };
            let whole = &*tx;
            let id = whole.base().id;
            if let Some(file) = whole.base().files.all().get(index)
                && (records || outputs.wants(EventType::Fileinfo))
            {
                let way = if file.to_client { Direction::ToClient } else { Direction::ToServer };
                let default = AppLogOptions::default();
                let event = AppEvent {
                    kind: EventType::Fileinfo,
                    header: towards(header, way),
                    tx_id: None,
                    direction: None,
                    xff: Some(Forwarded {
                        direction: direction(way),
                        find: &|header, forward| whole.forwarded_for(header, forward),
                    }),
                    records: ONE_RECORD,
                    fields: &|json, n, _| {
                        let options = options.get(n).unwrap_or(&default);
                        whole.log(json, options, LogFor::File);
                        if let Some(proto) = app_proto {
                            json.str("app_proto", proto);
                        }
                        log(file, id, json, &options.files);
                    },
                    ask: None,
                };
                outputs.app(&event);
                if records {
                    engine.write_record(config, file, header.time, record.render(&event));
                }
            }
            if scripts.wants(Occasion::File) {
                scripts.file(detect, context, &*tx, index, engine);
            }
            tx.base_mut().files.set_logged(index);
        }
    }
}

/// A flow's header, changed to that of a direction.
pub(super) fn towards<'a>(header: &Header<'a>, way: Direction) -> Header<'a> {
    if way == Direction::ToClient { header.reversed() } else { *header }
}

/// Appends the files of an alert's transaction in direction `way`.
pub(super) fn alert_files(
    tx: &dyn Transaction,
    way: Direction,
    json: &mut margay_output::json::Json,
    options: &FileLogOptions,
) {
    let base = tx.base();
    // As in Suricata, a file that ended in an earlier packet is no longer part of it.
    let mut new = base.files.of(way).filter(|f| !f.logged()).peekable();
    match new.peek() {
        Some(_) => margay_app::file::log_files(new, base.id, json, options),
        None => margay_app::file::log_files(base.files.of(way), base.id, json, options),
    }
}
