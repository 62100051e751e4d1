//! Limits the panel's connections. Any process on this machine can connect, so a connection is
//! unauthenticated until it has shown the token. Unauthenticated connections have a limit of their
//! own: a new one displaces the oldest. Authenticated connections are never displaced.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// The maximum number of connections that have not shown the token.
pub(super) const STRANGER_LIMIT: usize = 128;

/// The maximum number of authenticated connections. A browser opens at most six for a page.
pub(super) const HOLDER_LIMIT: usize = 96;

/// The minimum time that an unauthenticated connection keeps its place, so that a flood of
/// connections does not displace one whose request is about to arrive.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// The places of all connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    last: u64,
    /// The unauthenticated connections, in order of arrival.
    strangers: BTreeMap<u64, Stranger>,
    holders: usize,
}

#[derive(Debug)]
struct Stranger {
    since: Instant,
    leave: CancellationToken,
}

/// A connection's place. Dropping it releases the place.
#[derive(Debug)]
pub(super) struct Place {
    admission: Admission,
    number: u64,
    holds: Mutex<bool>,
    /// Cancelled when another connection takes the place.
    pub leave: CancellationToken,
}

impl Admission {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that the next connection has to wait if all unauthenticated connections are too
    /// recent to displace.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let places = self.places();
        let (_, oldest) = places.strangers.first_key_value()?;
        let is_full = places.strangers.len() >= STRANGER_LIMIT;
        let left = GRACE.saturating_sub(now.saturating_duration_since(oldest.since));
        (is_full && !left.is_zero()).then_some(left)
    }

    /// Takes a place for a new connection. If there is none, displaces the oldest unauthenticated
    /// connection.
    pub(super) fn enter(&self) -> Place {
        let leave = CancellationToken::new();
        let mut places = self.places();
        while places.strangers.len() >= STRANGER_LIMIT
            && let Some((_, oldest)) = places.strangers.pop_first()
        {
            oldest.leave.cancel();
        }
        places.last += 1;
        let number = places.last;
        let stranger = Stranger { since: Instant::now(), leave: leave.clone() };
        places.strangers.insert(number, stranger);
        Place { admission: self.clone(), number, holds: Mutex::new(false), leave }
    }
}

impl Place {
    /// Marks the connection as authenticated. Returns false if there are too many of them, or the
    /// place was taken meanwhile.
    pub(super) fn show_token(&self) -> bool {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if *holds {
            return true;
        }
        let mut places = self.admission.places();
        if places.holders >= HOLDER_LIMIT || places.strangers.remove(&self.number).is_none() {
            return false;
        }
        places.holders += 1;
        *holds = true;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let holds = *self.holds.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut places = self.admission.places();
        if holds {
            places.holders = places.holders.saturating_sub(1);
        } else {
            places.strangers.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_is_displaced() {
        let admission = Admission::default();
        let mut places: Vec<Place> = (0..STRANGER_LIMIT).map(|_| admission.enter()).collect();
        assert!(places.iter().all(|place| !place.leave.is_cancelled()));
        let next = admission.enter();
        let gone = places.iter().filter(|place| place.leave.is_cancelled()).count();
        assert!(gone == 1 && places[0].leave.is_cancelled() && !next.leave.is_cancelled());
        assert!(!places[0].show_token(), "its place has gone");
        // A connection that closes makes room.
        drop(places.split_off(STRANGER_LIMIT - 10));
        let more: Vec<Place> = (0..10).map(|_| admission.enter()).collect();
        let still = places.iter().chain(&more).filter(|place| !place.leave.is_cancelled());
        assert_eq!(still.count(), STRANGER_LIMIT - 1);
    }

    #[test]
    fn token_holders_stay() {
        let admission = Admission::default();
        let holder = admission.enter();
        assert!(holder.show_token() && holder.show_token(), "twice is once");
        let strangers: Vec<Place> = (0..10 * STRANGER_LIMIT).map(|_| admission.enter()).collect();
        assert!(!holder.leave.is_cancelled());
        assert_eq!(admission.places().strangers.len(), STRANGER_LIMIT);
        drop((holder, strangers));
        let places = admission.places();
        assert_eq!((places.holders, places.strangers.len()), (0, 0));
    }

    #[test]
    fn holders_have_a_limit_too() {
        let admission = Admission::default();
        let mut holders = Vec::new();
        for _ in 0..HOLDER_LIMIT {
            let place = admission.enter();
            assert!(place.show_token());
            holders.push(place);
        }
        let one_more = admission.enter();
        assert!(!one_more.show_token());
        holders.pop();
        assert!(one_more.show_token());
    }

    #[test]
    fn a_flood_waits() {
        let admission = Admission::default();
        let before = Instant::now();
        let mut places: Vec<Place> = (1..STRANGER_LIMIT).map(|_| admission.enter()).collect();
        assert_eq!(admission.wait(before), None);
        places.push(admission.enter());
        assert_eq!(admission.wait(before), Some(GRACE));
        assert_eq!(admission.wait(Instant::now() + GRACE), None);
        assert!(places[0].show_token());
        assert_eq!(admission.wait(before), None);
    }
}
