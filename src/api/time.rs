//! Times as objects of Kubernetes have them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Cuts a time to the second, as the API server does, so that a status that is read equals the written one.
#[must_use]
pub fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// The first whole second that is not before a time: what is to last for a while lasts as long, and not a part of a second less.
#[must_use]
pub fn next_whole_second(time: Timestamp) -> Timestamp {
    let cut = whole_seconds(time).0;
    let next = cut.saturating_add(SignedDuration::from_secs(1)).unwrap_or(cut);
    if cut < time { next } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_what_comes_back_from_the_wire() {
        for (second, nanosecond) in [(0, 0), (1_000_000, 1), (1_000_000, 999_999_999)] {
            let time = whole_seconds(Timestamp::new(second, nanosecond).unwrap());
            let read: Time = serde_json::from_str(&serde_json::to_string(&time).unwrap()).unwrap();
            assert_eq!((time.0.as_second(), &time), (second, &read));
        }
    }

    #[test]
    fn a_time_that_is_no_whole_second_is_cut_to_the_next() {
        for (nanosecond, second) in [(0, 7), (1, 8), (999_999_999, 8)] {
            let next = next_whole_second(Timestamp::new(7, nanosecond).unwrap());
            assert_eq!(next, Timestamp::from_second(second).unwrap(), "{nanosecond}");
        }
    }
}
