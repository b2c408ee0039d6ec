//! The port of a dispatcher outlives its process, so that executors find a dispatcher that was started again where it was.
//!
//! Nodes of other machines learn an address from a file that somebody has to write anew, over a file system that may show it late. A
//! restarted dispatcher gives nothing out for [`eyas_core::dispatcher::RETURN_GRACE_NS`]; an executor that finds it only after
//! that may see its tasks begun elsewhere.

use super::DispatcherOptions;
use eyas_text::shown_path;
use std::path::Path;
use tokio::net::TcpListener;

const FILE: &str = "port";

/// Listens on the port of the process before, where any port will do and that one is free.
pub(super) async fn earlier_listener(options: &DispatcherOptions, dir: &Path) -> Option<TcpListener> {
    let host = options.listen.strip_suffix(":0")?;
    let kept: u16 = std::fs::read_to_string(dir.join(FILE)).ok()?.trim().parse().ok()?;
    TcpListener::bind(format!("{host}:{kept}")).await.ok()
}

/// Notes the port for the next process.
pub(super) fn keep(dir: &Path, port: u16) {
    // Without the file the next process takes another port, which executors learn from the join file.
    if let Err(e) = std::fs::write(dir.join(FILE), format!("{port}\n")) {
        eyas_text::say!("eyas: cannot write {}: {e}", shown_path(&dir.join(FILE)));
    }
}
