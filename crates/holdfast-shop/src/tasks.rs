//! The tasks of one process that must end before the process does.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// Spawns commands in tasks of their own, which outlive the requests that began them. Cheap to
/// clone; clones share the list of running tasks.
#[derive(Debug, Clone, Default)]
pub struct Tasks(TaskTracker);

impl Tasks {
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.spawn(task)
    }

    /// Waits until no task runs.
    pub async fn wait(&self) {
        self.0.close();
        self.0.wait().await;
        self.0.reopen();
    }
}
