//! The tasks of one process that must end before the process does.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// Spawns commands in tasks of their own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tasks {
    /// The main runtime, which outlives the workers that serve requests.
    pub runtime: Handle,
    /// The running tasks; the process waits for them before it ends.
    pub running: TaskTracker,
}

impl Tasks {
    pub fn on_current_runtime() -> Self {
        Self { runtime: Handle::current(), running: TaskTracker::new() }
    }

    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.running.spawn_on(task, &self.runtime)
    }
}
