//! The slot of a command in a Cluster, and the node that owns it.

use std::vec::IntoIter;

use redis::{Arg, Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind, Value};

use super::request::RedisRequest;
use crate::key::hash_tag;

/// A node, by host and port.
pub(super) type Node = (String, u16);

const SLOTS: u16 = 16_384;

/// The owner of each range of slots.
#[derive(Debug, Default)]
pub(super) struct SlotMap(Vec<(u16, u16, Node)>);

impl SlotMap {
    /// Parses the response of the node `source` to `CLUSTER SLOTS`.
    pub(super) fn read(response: Value, source: &Node) -> Result<Self, RedisError> {
        let ranges: Vec<Vec<Value>> = redis::from_redis_value(response)?;
        let mut map = Vec::with_capacity(ranges.len());
        for range in ranges {
            let mut fields = range.into_iter();
            let first = next_field(&mut fields)?;
            let last = next_field(&mut fields)?;
            let primary: Vec<Value> = next_field(&mut fields)?;

            let mut primary = primary.into_iter();
            let host: Option<String> = next_field(&mut primary)?;
            let port = next_field(&mut primary)?;
            // A node that does not know its own host name has that of `source`.
            let host = host.filter(|host| !matches!(host.as_str(), "" | "?"));
            map.push((first, last, (host.unwrap_or_else(|| source.0.clone()), port)));
        }
        Ok(Self(map))
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Node> {
        self.0
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&slot))
            .map(|found| &found.2)
    }

    pub(super) fn primaries(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.0.iter().map(|(_, _, node)| node.clone()).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }
}

fn next_field<T: FromRedisValue>(fields: &mut IntoIter<Value>) -> Result<T, RedisError> {
    Ok(redis::from_redis_value(fields.next().unwrap_or(Value::Nil))?)
}

/// Returns the slot of the commands; `None` if they have no key. Fails if they belong to several.
pub(super) fn of(request: RedisRequest<'_>) -> Result<Option<u16>, RedisError> {
    let pipe = match request {
        RedisRequest::Command(command) => return Ok(key_of(command).map(of_key)),
        RedisRequest::Pipe(pipe, _, _) => pipe,
    };

    let mut slots = pipe.cmd_iter().filter_map(key_of).map(of_key);
    let first = slots.next();
    if slots.any(|slot| Some(slot) != first) {
        let why = "the commands of one pipeline belong to several slots";
        return Err((ErrorKind::Server(ServerErrorKind::CrossSlot), why).into());
    }
    Ok(first)
}

/// Returns the key that determines the slot of a command. Covers this crate's commands only.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    let at = match argument(command, 0)?.to_ascii_uppercase().as_slice() {
        b"PING" | b"CONFIG" | b"SCAN" | b"SCRIPT" | b"DBSIZE" => return None,
        // MEMORY USAGE key
        b"MEMORY" => 2,
        b"EVAL" | b"EVALSHA" if argument(command, 2)? == b"0" => return None,
        b"EVAL" | b"EVALSHA" => 3,
        _ => 1,
    };
    argument(command, at)
}

fn argument(command: &Cmd, at: usize) -> Option<&[u8]> {
    match command.args_iter().nth(at)? {
        Arg::Simple(argument) => Some(argument),
        _ => None,
    }
}

pub(super) fn of_key(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use redis::{Script, Value};

    use super::super::request::RedisRequest;
    use super::{SlotMap, crc16, of, of_key};

    #[test]
    fn slots_match_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(of_key(b"foo"), 12_182);
        for same in ["{foo}", "holdfast:lock:{foo}:queue", "a{foo}{bar}"] {
            assert_eq!(of_key(same.as_bytes()), 12_182, "{same}");
        }
        // An empty hash tag does not count.
        assert_eq!(of_key(b"foo{}{bar}"), crc16(b"foo{}{bar}") % super::SLOTS);
    }

    #[test]
    fn commands_have_the_slot_of_their_key() {
        let get = redis::Cmd::get("foo");
        assert_eq!(of(RedisRequest::Command(&get)).unwrap(), Some(12_182));
        let ping = redis::cmd("PING");
        assert_eq!(of(RedisRequest::Command(&ping)).unwrap(), None);
        let memory = redis::cmd("MEMORY").arg("USAGE").arg("foo").to_owned();
        assert_eq!(of(RedisRequest::Command(&memory)).unwrap(), Some(12_182));
        let mut script = redis::cmd("evalsha");
        script.arg(Script::new("return 1").get_hash()).arg(2).arg("foo").arg("{foo}:x");
        assert_eq!(of(RedisRequest::Command(&script)).unwrap(), Some(12_182));
        let pipe = redis::pipe().get("foo").pttl("{foo}:x").to_owned();
        assert_eq!(of(RedisRequest::Pipe(&pipe, 0, 2)).unwrap(), Some(12_182));
        let apart = redis::pipe().get("foo").get("bar").to_owned();
        assert!(of(RedisRequest::Pipe(&apart, 0, 2)).is_err());
    }

    #[test]
    fn unnamed_node_uses_queried_address() {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), Value::Nil]);
        let range =
            |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let response = Value::Array(vec![
            range(0, 99, node(Value::BulkString(b"a".to_vec()), 1)),
            range(100, 16_383, node(Value::Nil, 2)),
        ]);
        let map = SlotMap::read(response, &("queried".to_owned(), 9)).unwrap();
        assert_eq!(map.owner(99).unwrap(), &("a".to_owned(), 1));
        assert_eq!(map.owner(100).unwrap(), &("queried".to_owned(), 2));
        assert_eq!(map.primaries().len(), 2);
    }
}
