//! The strategies with a data path of their own.

use super::data_path::DataPaths;
use super::pre_deduct::path::PreDeduct;
use super::units::path::Units;
use super::{pre_deduct, units};
use crate::db::Pool;
use crate::locks::ShopLocks;
use crate::tasks::Tasks;

/// Returns the data paths of a shop with these parts.
pub fn data_paths(pool: &Pool, locks: &ShopLocks, tasks: &Tasks) -> DataPaths {
    DataPaths::new([
        (units::STRATEGY.name, Box::new(Units) as _),
        (pre_deduct::STRATEGY.name, Box::new(PreDeduct::new(pool, locks, tasks)) as _),
    ])
}
