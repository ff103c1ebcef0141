//! What strikes a service at a statement of an order, while it sells.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join;
use holdfast_lock::clock::monotonic_us;
use holdfast_services::{Proxy, Traffic};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::buyers::{AttemptOutcome, OrderAttempt};
use super::pass::{Load, Pass};
use super::stage::{RunItem, ServiceStage};
use super::watch::{Aim, Strike, Watch};
use crate::servers::RedisServers;

/// An instance that does not wait for its requests has ended so long after SIGTERM.
const SIGNAL_TIME: Duration = Duration::from_millis(500);
/// Time for another order to take a unit while one waits, and for Redis to be away.
const TAKEOVER: Duration = Duration::from_secs(3);
const AWAY: Duration = Duration::from_secs(3);

/// An instance that was struck, or whose order was under way when Redis was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Struck {
    pub(super) instance: usize,
    /// Microseconds of the machine's monotonic clock.
    pub(super) at_us: u64,
}

/// Returns how many orders are sold while it strikes once. A restart strikes each instance.
fn part_length(pass: Pass, attempts: usize, instances: usize) -> usize {
    if pass == Pass::Restart { attempts.div_ceil(instances) } else { attempts }
}

/// Gives each instance that is ended one of the orders that are sold during the pass.
pub(super) fn serve_each(pass: Pass, attempts: &mut [OrderAttempt], instances: usize) {
    if pass == Pass::Restart {
        let parts = attempts.chunks_mut(part_length(pass, attempts.len(), instances));
        parts.enumerate().for_each(|(instance, part)| part[0].instance = instance);
    }
}

/// Sells, and strikes at a statement. Returns what was struck.
pub(super) async fn sell_and_strike(
    stage: &mut ServiceStage<'_>,
    pass: Pass,
    aim: Aim,
    (attempts, load): (Vec<OrderAttempt>, Load),
    item: &RunItem,
) -> anyhow::Result<(Vec<AttemptOutcome>, Vec<Struck>)> {
    let (mut outcomes, mut all_struck) = (Vec::new(), Vec::new());
    let length = part_length(pass, attempts.len(), stage.instances.len());
    for (number, part) in attempts.chunks(length).enumerate() {
        // Before the first order: a sell-out lasts a tenth of a second.
        let strike = stage.watch.arm(aim, (pass == Pass::Restart).then_some(number));
        let ServiceStage {
            file, buyers, watch, instances, redis, postgres_links, redis_links, ..
        } = &mut *stage;
        let selling = async {
            let sold = buyers.order(pass, part.to_vec(), load.buyers, &item.values).await;
            watch.disarm();
            sold
        };

        let striking = async {
            let Ok(Strike { instance, go }) = strike.await else { return anyhow::Ok(()) };
            all_struck.push(Struck { instance, at_us: monotonic_us() });
            let struck = &mut instances[instance];
            match pass {
                Pass::Pause => {
                    struck.pause().await?;
                    let _ = go.send(true);
                    sleep(file.pause()).await;
                    struck.resume();
                }
                Pass::Kill => {
                    struck.kill().await;
                    let _ = go.send(false);
                    struck.start_again(&file.service.ready).await?;
                }
                Pass::Restart => {
                    struck.terminate().await;
                    sleep(SIGNAL_TIME).await;
                    let _ = go.send(true);
                    struck.wait_terminated().await;
                    struck.start_again(&file.service.ready).await?;
                }
                Pass::DatabaseCut => {
                    postgres_links[instance].close_connections().await;
                    let _ = go.send(false);
                }
                _ => {
                    let redis = redis.as_mut().context("there is no Redis")?;
                    strike_redis(pass, redis, redis_links, watch, go).await?;
                }
            }
            Ok(())
        };
        let (sold, struck) = join(selling, striking).await;
        struck?;
        outcomes.extend(sold);
    }
    Ok((outcomes, all_struck))
}

/// Strikes Redis while a request waits for an answer of Postgres.
async fn strike_redis(
    pass: Pass,
    redis: &mut RedisServers,
    links: &[Proxy],
    watch: &Watch,
    go: oneshot::Sender<bool>,
) -> anyhow::Result<()> {
    match pass {
        Pass::RedisAway => {
            links.iter().for_each(|link| link.set(Traffic::Refused));
            let _ = go.send(true);
            sleep(AWAY).await;
            links.iter().for_each(|link| link.set(Traffic::Forwarded));
            return Ok(());
        }
        Pass::RedisRestart => {
            let socket = redis.restart().await?;
            links.iter().for_each(|link| link.repoint(&socket));
        }
        _ => redis.flush().await?,
    }

    // It works on only when another order, which may have got its lock, has taken a unit.
    let _ = timeout(TAKEOVER, watch.arm(Aim::Commit, None)).await;
    let _ = go.send(true);
    Ok(())
}
