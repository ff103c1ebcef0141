//! The steps of a key's actor while its process waits in the queue.

use super::actor::KeyActor;
use super::local_state::LocalState;
use super::protocol::Grant;
use crate::clock::{lease_deadline_us, monotonic_us, us};
use crate::observer::Source;
use crate::time::timeout_at;

impl KeyActor {
    /// Waits for a message until the next poll is due, then polls.
    pub(super) async fn wait_in_queue(&mut self) {
        let LocalState::Queued { id, poll_at, .. } = &self.state else { return };
        let id = id.clone();

        match timeout_at(*poll_at, self.inbox.recv()).await {
            Ok(Some(message)) => self.handle(message).await,
            Ok(None) => {}
            Err(_) => self.request(id, true, Source::Poll).await,
        }
    }

    /// Handles a grant message. If the grant was made after the last poll, it is as good as a
    /// confirmation: it lasts at least for a grant's time from that poll, however long the message
    /// took. It is then confirmed by the first renewal, if the lock is still in use. Any other
    /// grant is confirmed first.
    pub(super) async fn handle_grant(&mut self, granted: &str, grant: Grant) {
        let LocalState::Queued { id, polled_us, fence, .. } = &self.state else { return };
        if id != granted {
            return;
        }

        let length = self.shared.timing.grant_ttl;
        let polled_us = *polled_us;
        let enough = monotonic_us() + us(length / 3) < lease_deadline_us(polled_us, length);
        if fence.is_none_or(|fence| grant.fence <= fence) || !enough {
            return self.confirm().await;
        }

        let id = id.clone();
        self.start_lease(id, length, polled_us, grant, Source::RemoteHandoff);
        let ttl = self.ttl();
        if let LocalState::Held(held) = &mut self.state {
            // That of the lease which the first renewal makes of the grant.
            held.ttl = ttl;
        }
    }

    async fn confirm(&mut self) {
        let LocalState::Queued { id, .. } = &self.state else { return };
        let id = id.clone();
        let ttl = self.ttl();
        let sent_us = monotonic_us();
        match self.shared.protocol.confirm(&self.key, &id, ttl).await {
            Ok(Some(grant)) => self.start_lease(id, ttl, sent_us, grant, Source::RemoteHandoff),
            // The grant is gone; the next poll queues the id anew.
            Ok(None) => {}
            Err(error) => self.fail_waiters(id, &error),
        }
    }

    pub(super) async fn leave(&mut self) {
        if let LocalState::Queued { id, .. } = std::mem::replace(&mut self.state, LocalState::Idle)
            && let Err(error) = self.shared.protocol.leave(&self.key, &id).await
        {
            // Redis skips the waiter once it has not polled for three intervals.
            tracing::debug!(%error, "a place in the queue could not be given up");
        }
    }
}
