//! Who has a place at the panel. Anybody on this machine can connect, so a connection is a stranger
//! until it has shown the token, and strangers have places of their own: the oldest of them gives
//! its place up to the next who comes. Those who have shown the token keep theirs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Connections that have not shown the token.
pub(super) const STRANGER_LIMIT: usize = 128;

/// Connections that have. A browser opens at most six for a page.
pub(super) const HOLDER_LIMIT: usize = 96;

/// A stranger keeps its place for at least this long, so that a flood of connections does not push
/// out one whose request is just on its way.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// All places.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    last: u64,
    /// By the order in which they came.
    strangers: BTreeMap<u64, Stranger>,
    holders: usize,
}

#[derive(Debug)]
struct Stranger {
    since: Instant,
    leave: CancellationToken,
}

/// A connection's place, which it gives back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    admission: Admission,
    number: u64,
    holds: Mutex<bool>,
    /// Cancelled when the place has gone to somebody else.
    pub leave: CancellationToken,
}

impl Admission {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long the next connection has to wait, where every stranger has only just come.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let places = self.places();
        let (_, oldest) = places.strangers.first_key_value()?;
        let is_full = places.strangers.len() >= STRANGER_LIMIT;
        let left = GRACE.saturating_sub(now.saturating_duration_since(oldest.since));
        (is_full && !left.is_zero()).then_some(left)
    }

    /// A place for a new connection. Where there is none, the oldest stranger has to go.
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
    /// Notes that the connection has shown the token. False where too many others have, or where
    /// the place has gone to somebody else meanwhile.
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
    fn the_oldest_stranger_gives_its_place_up() {
        let admission = Admission::default();
        let mut places: Vec<Place> = (0..STRANGER_LIMIT).map(|_| admission.enter()).collect();
        assert!(places.iter().all(|place| !place.leave.is_cancelled()));
        let next = admission.enter();
        let gone = places.iter().filter(|place| place.leave.is_cancelled()).count();
        assert!(gone == 1 && places[0].leave.is_cancelled() && !next.leave.is_cancelled());
        assert!(!places[0].show_token(), "its place has gone");
        // Who goes by itself makes room.
        drop(places.split_off(STRANGER_LIMIT - 10));
        let more: Vec<Place> = (0..10).map(|_| admission.enter()).collect();
        let still = places.iter().chain(&more).filter(|place| !place.leave.is_cancelled());
        assert_eq!(still.count(), STRANGER_LIMIT - 1);
    }

    #[test]
    fn who_has_shown_the_token_stays() {
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
