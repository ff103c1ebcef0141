//! Hashes and verifies passwords with argon2id.
//!
//! A password is hashed in NFC: `é` is the same character, whether a keyboard composes it or not.
//! Case and width are never changed.
//!
//! A hash takes tens of milliseconds and 19 MiB by design. Guarantees: a bounded number of hashes
//! run at a time, each in memory that the process allocates once and reuses; a bounded number of
//! callers wait, in FIFO order, and a caller beyond that is rejected at once
//! ([`Error::Overloaded`]), so that a flood of sign-ins delays others by about a second at most; a
//! caller that leaves while it waits costs nothing. Tests: `tests/it/passwords.rs`.

use std::cell::RefCell;
use std::fmt::Display;
use std::sync::{LazyLock, OnceLock};

use argon2::password_hash::phc::{Output, ParamsString, Salt};
use argon2::password_hash::{self, CustomizedPasswordHasher, PasswordVerifier, try_generate_salt};
use argon2::{Algorithm, Argon2, Block, Params, PasswordHash, Version};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use unicode_normalization::UnicodeNormalization as _;

use super::failure::Error;

/// Upper bound of callers that wait for one hasher: about a second of its work.
const MAX_QUEUE_PER_HASHER: usize = 32;
/// Hashes at a time: half the cores, so that sign-ins leave time for orders; two at least, so that
/// one hash does not delay all others; eight at most, each of which keeps 19 MiB.
static HASHERS: LazyLock<usize> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).clamp(2, 8)
});
static PLACES: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(*HASHERS * (1 + MAX_QUEUE_PER_HASHER)));
static RUNNING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*HASHERS));
static MEMORY: Mutex<Vec<HashMemory>> = Mutex::new(Vec::new());

/// Hash that a password is compared with if the name is unknown. No user has it.
static DUMMY_HASH: OnceLock<String> = OnceLock::new();

/// The memory in which argon2 computes. It holds no password, only what was derived from it.
#[derive(Default)]
struct HashMemory(RefCell<Vec<Block>>);

impl HashMemory {
    fn hash(&self, password: &str) -> password_hash::Result<String> {
        let password = composed(password);
        let salt = try_generate_salt().map_err(|_| password_hash::Error::Crypto)?;
        let params = Params::default();
        self.hash_password_with_params(password.as_bytes(), &salt, params)
            .map(|hash| hash.to_string())
    }

    fn verify(&self, password: &str, hash: Option<&str>) -> bool {
        let hash = hash.unwrap_or_else(|| {
            DUMMY_HASH.get_or_init(|| self.hash("nobody's password").unwrap_or_default())
        });
        let Ok(hash) = PasswordHash::new(hash) else { return false };
        let matches = |password: &str| self.verify_password(password.as_bytes(), &hash).is_ok();

        let composed = composed(password);
        // A hash that was made before passwords were composed is one of the bytes as typed.
        matches(&composed) || (composed != password && matches(password))
    }
}

/// As `Argon2` implements it, but for the memory. [`PasswordVerifier`] calls it with the parameters
/// of the stored hash.
impl CustomizedPasswordHasher<PasswordHash> for HashMemory {
    type Params = Params;

    fn hash_password_customized(
        &self,
        password: &[u8],
        salt: &[u8],
        algorithm: Option<&str>,
        version: Option<u32>,
        params: Params,
    ) -> password_hash::Result<PasswordHash> {
        let algorithm = algorithm.map(Algorithm::try_from).transpose()?.unwrap_or_default();
        let version = version.map(Version::try_from).transpose()?.unwrap_or_default();

        let mut output = [0; Output::MAX_LENGTH];
        let output = output
            .get_mut(..params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN))
            .ok_or(password_hash::Error::OutputSize)?;

        // Only grows: zeroing 19 MiB for each password would cost more than it protects.
        let mut blocks = self.0.borrow_mut();
        if blocks.len() < params.block_count() {
            blocks.resize(params.block_count(), Block::new());
        }
        let argon2 = Argon2::new(algorithm, version, params.clone());
        argon2.hash_password_into_with_memory(password, salt, output, blocks.as_mut_slice())?;

        Ok(PasswordHash {
            algorithm: algorithm.ident(),
            version: Some(version.into()),
            params: ParamsString::try_from(&params)?,
            salt: Some(Salt::new(salt)?),
            hash: Some(Output::new(output)?),
        })
    }
}

fn composed(password: &str) -> String {
    password.nfc().collect()
}

/// Returns the number of characters of a password, as it is hashed.
pub(super) fn length(password: &str) -> usize {
    password.nfc().count()
}

pub async fn hash(password: String) -> Result<String, Error> {
    run(move |memory| memory.hash(&password)).await?.map_err(|error| bug(&error))
}

/// Verifies a password, against a dummy hash if there is none, which takes as long.
pub(super) async fn verify(password: String, hash: Option<String>) -> Result<bool, Error> {
    run(move |memory| memory.verify(&password, hash.as_deref())).await
}

/// Returns how many passwords wait to be hashed, and how many may.
pub fn queue_length() -> (usize, usize) {
    let max = *HASHERS * MAX_QUEUE_PER_HASHER;
    let admitted = *HASHERS + max - PLACES.available_permits();
    let running = *HASHERS - RUNNING.available_permits();
    (admitted.saturating_sub(running), max)
}

async fn run<T: Send + 'static>(
    work: impl FnOnce(&HashMemory) -> T + Send + 'static,
) -> Result<T, Error> {
    let place = PLACES.try_acquire().map_err(|_| {
        let waiting = *HASHERS * MAX_QUEUE_PER_HASHER;
        Error::Overloaded(format!("{waiting} other passwords wait to be hashed"))
    })?;
    let hasher = RUNNING.acquire().await.map_err(|error| bug(&error))?;

    // The permits move into the task: a hash whose caller has left still occupies its hasher.
    let hashing = tokio::task::spawn_blocking(move || {
        let _permits = (place, hasher);
        let memory = MEMORY.lock().pop().unwrap_or_default();
        let result = work(&memory);
        MEMORY.lock().push(memory);
        result
    });
    hashing.await.map_err(|error| bug(&error))
}

fn bug(error: &dyn Display) -> Error {
    Error::Bug(error.to_string())
}

#[cfg(test)]
mod tests {
    use argon2::PasswordHasher as _;

    use super::*;

    #[test]
    fn used_memory_does_not_change_hashes() {
        let memory = HashMemory::default();
        for password in ["first", "second", ""] {
            let hash = memory.hash(password).expect("a hash");
            let parsed = PasswordHash::new(&hash).expect("a PHC string");
            assert!(Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok());
            assert!(memory.verify(password, Some(&hash)));
            assert!(!memory.verify("another", Some(&hash)));
            assert!(!memory.verify(password, None));
        }
        assert_eq!(memory.0.borrow().len(), Params::default().block_count());
    }

    #[test]
    fn passwords_are_composed_and_old_hashes_verified() {
        let memory = HashMemory::default();
        let (composed, typed) = ("Crème 1", "Cre\u{300}me 1");
        let hash = memory.hash(typed).expect("a hash");
        for password in [composed, typed] {
            assert!(memory.verify(password, Some(&hash)), "{password:?}");
        }
        for other in ["crème 1", "Creme 1", "Crème １"] {
            assert!(!memory.verify(other, Some(&hash)), "{other:?}");
        }

        let old = Argon2::default().hash_password(typed.as_bytes()).expect("a hash").to_string();
        assert!(memory.verify(typed, Some(&old)));
        assert!(!memory.verify(composed, Some(&old)));
        assert_eq!((length(typed), length("한글")), (7, 2));
    }

    #[test]
    fn stored_parameters_are_applied() {
        let memory = HashMemory::default();
        for (blocks, lanes) in [(64, 2), (19_500, 1), (8, 1)] {
            let params = Params::new(blocks, 1, lanes, Some(16)).expect("parameters");
            let other = Argon2::new(Algorithm::Argon2id, Version::V0x10, params);
            let hash = other.hash_password(b"a password").expect("a hash").to_string();
            assert!(memory.verify("a password", Some(&hash)), "{hash}");
            assert!(!memory.verify("another", Some(&hash)), "{hash}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hash_queue_is_bounded() {
        let calls = (0..*HASHERS * (1 + MAX_QUEUE_PER_HASHER) + 50)
            .map(|_| verify("a password".to_owned(), None));
        let results = futures_util::future::join_all(calls).await;
        let rejected = results.iter().filter(|r| matches!(r, Err(Error::Overloaded(_)))).count();
        assert!(rejected >= 50, "{rejected}");
        assert!(results.iter().all(|r| matches!(r, Ok(false) | Err(Error::Overloaded(_)))));
        assert!(MEMORY.lock().len() <= *HASHERS);
        // A caller that left its place does not occupy it.
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(hash(String::new()))).collect();
        waiting.iter_mut().for_each(|call| drop(futures_util::FutureExt::now_or_never(call)));
        drop(waiting);
        hash("a password".to_owned()).await.expect("there is a place");
    }
}
