//! Takes back the last step of a game: repeats the steps before it in a new game.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::game::{Game, GameError, GameStep, Refusal};
use super::{Games, POLL_INTERVAL, REACTION_TIMEOUT, STEP_TIMEOUT};
use crate::messages::message;
use crate::shop::{Error, Failure, Rejection};

/// Timeout of an undo, with all its steps; shorter than a request's.
const UNDO_TIMEOUT: Duration = Duration::from_secs(5);

impl Games {
    /// Begins another game, repeats all steps but the last, and puts it in the place of this one.
    /// If the steps do not have the same effects within [`UNDO_TIMEOUT`], this one goes on.
    pub async fn undo(&self, game: &Game) -> Result<Arc<Game>, GameError> {
        let _turn = game.turn.lock().await;
        let ended = || Rejection::NotFound(message!("problem-missing-game"));
        self.game(game.id).ok_or_else(ended)?;
        // Another game must not take its place meanwhile.
        *game.last_used.lock() = Instant::now();
        let mut steps = game.steps.lock().clone();
        steps.pop();
        // If it is not completed, dropping the new game releases its orders.
        let again = match timeout(UNDO_TIMEOUT, self.replay_all(game, steps)).await {
            // A row that stays locked keeps the new game from its item.
            Err(_) | Ok(Err(GameError::Failed(Failure::Error(Error::RowLocked(_))))) => {
                return Err(Refusal::NotReplayed.into());
            }
            Ok(replayed) => replayed?,
        };
        let mut games = self.games.lock();
        games.remove(&game.id).ok_or_else(ended)?;
        games.insert(again.id, Arc::clone(&again));
        game.release();
        Ok(again)
    }

    /// Starts a game like `game`, and repeats `steps`.
    async fn replay_all(&self, game: &Game, steps: Vec<GameStep>) -> Result<Arc<Game>, GameError> {
        let _turn = self.undo_turn.lock().await;
        let again = self.start(&game.player, game.rules).await?;
        self.wait_until_all_settled(&again, STEP_TIMEOUT).await;
        for step in steps {
            self.replay(&again, step).await?;
        }
        Ok(again)
    }

    /// Repeats a step. Waits for its effects without a timeout of its own.
    async fn replay(&self, game: &Game, step: GameStep) -> Result<(), GameError> {
        match game.orders.iter().find(|order| Some(order.name) == step.who) {
            Some(order) => {
                // It may have waited for the lock, and gets it now.
                self.wait_until_settled(order, None, UNDO_TIMEOUT).await;
                let (_, since) = self.paused_at(order).ok_or(Refusal::NotReplayed)?;
                let _ = self.board.resume(order.request_id, Some(since));
                // An order that waits does not settle: it gets as long as it needs to ask.
                let waits = step.at.is_none() && step.result.is_none();
                let timeout = if waits { REACTION_TIMEOUT } else { UNDO_TIMEOUT };
                self.wait_until_settled(order, Some(since), timeout).await;
            }
            None => self.delete_lock(game).await?,
        }
        // An order that waited for a lock may have it earlier than in the first game.
        let as_before = || {
            let positions = self.positions(game);
            positions.iter().zip(&step.all).all(|(now, then)| then.is_none() || now.held == *then)
        };
        while !as_before() {
            sleep(POLL_INTERVAL).await;
        }
        Ok(self.finish_step(game, step).await?)
    }
}
