//! Limits the panel's connections. Any process on this machine can connect, so a connection is
//! unauthenticated until it has shown the token. Unauthenticated connections have a limit of their
//! own: a new one displaces the oldest. Authenticated connections are never displaced.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// The maximum number of connections that have not shown the token.
pub(super) const UNAUTHENTICATED_LIMIT: usize = 128;

/// The maximum number of authenticated connections. A browser opens at most six for a page.
pub(super) const AUTHENTICATED_LIMIT: usize = 96;

/// The minimum time that an unauthenticated connection keeps its place, so that a flood of
/// connections does not displace one whose request is about to arrive.
pub(super) const MIN_CONNECTION_TIME: Duration = Duration::from_millis(100);

/// The places of all connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission(Arc<Mutex<ConnectionSlots>>);

#[derive(Debug, Default)]
struct ConnectionSlots {
    last: u64,
    /// The unauthenticated connections, in order of arrival.
    unauthenticated: BTreeMap<u64, UnauthenticatedConnection>,
    authenticated: usize,
}

#[derive(Debug)]
struct UnauthenticatedConnection {
    since: Instant,
    leave: CancellationToken,
}

/// A connection's place. Dropping it releases the place.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    admission: Admission,
    number: u64,
    is_authenticated: Mutex<bool>,
    /// Cancelled when another connection takes the place.
    pub leave: CancellationToken,
}

impl Admission {
    fn places(&self) -> MutexGuard<'_, ConnectionSlots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that the next connection has to wait if all unauthenticated connections are too
    /// recent to displace.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let places = self.places();
        let (_, oldest) = places.unauthenticated.first_key_value()?;
        let is_full = places.unauthenticated.len() >= UNAUTHENTICATED_LIMIT;
        let left = MIN_CONNECTION_TIME.saturating_sub(now.saturating_duration_since(oldest.since));
        (is_full && !left.is_zero()).then_some(left)
    }

    /// Takes a place for a new connection. If there is none, displaces the oldest unauthenticated
    /// connection.
    pub(super) fn enter(&self) -> ConnectionSlot {
        let leave = CancellationToken::new();
        let mut places = self.places();
        while places.unauthenticated.len() >= UNAUTHENTICATED_LIMIT
            && let Some((_, oldest)) = places.unauthenticated.pop_first()
        {
            oldest.leave.cancel();
        }
        places.last += 1;
        let number = places.last;
        let connection = UnauthenticatedConnection { since: Instant::now(), leave: leave.clone() };
        places.unauthenticated.insert(number, connection);
        ConnectionSlot {
            admission: self.clone(),
            number,
            is_authenticated: Mutex::new(false),
            leave,
        }
    }
}

impl ConnectionSlot {
    /// Marks the connection as authenticated. Returns false if there are too many of them, or the
    /// place was taken meanwhile.
    pub(super) fn authenticate(&self) -> bool {
        let mut is_authenticated =
            self.is_authenticated.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_authenticated {
            return true;
        }
        let mut places = self.admission.places();
        if places.authenticated >= AUTHENTICATED_LIMIT
            || places.unauthenticated.remove(&self.number).is_none()
        {
            return false;
        }
        places.authenticated += 1;
        *is_authenticated = true;
        true
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let is_authenticated =
            *self.is_authenticated.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut places = self.admission.places();
        if is_authenticated {
            places.authenticated = places.authenticated.saturating_sub(1);
        } else {
            places.unauthenticated.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_unauthenticated_connection_is_displaced() {
        let admission = Admission::default();
        let mut places: Vec<ConnectionSlot> =
            (0..UNAUTHENTICATED_LIMIT).map(|_| admission.enter()).collect();
        assert!(places.iter().all(|place| !place.leave.is_cancelled()));
        let next = admission.enter();
        let gone = places.iter().filter(|place| place.leave.is_cancelled()).count();
        assert!(gone == 1 && places[0].leave.is_cancelled() && !next.leave.is_cancelled());
        assert!(!places[0].authenticate(), "its place has gone");
        // A connection that closes makes room.
        drop(places.split_off(UNAUTHENTICATED_LIMIT - 10));
        let more: Vec<ConnectionSlot> = (0..10).map(|_| admission.enter()).collect();
        let still = places.iter().chain(&more).filter(|place| !place.leave.is_cancelled());
        assert_eq!(still.count(), UNAUTHENTICATED_LIMIT - 1);
    }

    #[test]
    fn authenticated_connections_stay() {
        let admission = Admission::default();
        let connection = admission.enter();
        assert!(connection.authenticate() && connection.authenticate(), "twice is once");
        let unauthenticated: Vec<ConnectionSlot> =
            (0..10 * UNAUTHENTICATED_LIMIT).map(|_| admission.enter()).collect();
        assert!(!connection.leave.is_cancelled());
        assert_eq!(admission.places().unauthenticated.len(), UNAUTHENTICATED_LIMIT);
        drop((connection, unauthenticated));
        let places = admission.places();
        assert_eq!((places.authenticated, places.unauthenticated.len()), (0, 0));
    }

    #[test]
    fn authenticated_connections_have_a_limit_too() {
        let admission = Admission::default();
        let mut authenticated = Vec::new();
        for _ in 0..AUTHENTICATED_LIMIT {
            let place = admission.enter();
            assert!(place.authenticate());
            authenticated.push(place);
        }
        let one_more = admission.enter();
        assert!(!one_more.authenticate());
        authenticated.pop();
        assert!(one_more.authenticate());
    }

    #[test]
    fn a_flood_waits() {
        let admission = Admission::default();
        let before = Instant::now();
        let mut places: Vec<ConnectionSlot> =
            (1..UNAUTHENTICATED_LIMIT).map(|_| admission.enter()).collect();
        assert_eq!(admission.wait(before), None);
        places.push(admission.enter());
        assert_eq!(admission.wait(before), Some(MIN_CONNECTION_TIME));
        assert_eq!(admission.wait(Instant::now() + MIN_CONNECTION_TIME), None);
        assert!(places[0].authenticate());
        assert_eq!(admission.wait(before), None);
    }
}
