//! Optional numbers in eight bytes instead of sixteen: a trace has millions of them.

macro_rules! optional {
    ($name:ident, $number:ty, $absent:expr, $which:literal) => {
        #[doc = concat!("An optional `", stringify!($number), "`. The ", $which, " number stands for none.")]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name($number);

        impl $name {
            /// The missing number.
            pub const NONE: $name = $name($absent);

            /// Returns the number, if there is one.
            pub fn get(self) -> Option<$number> {
                (self != $name::NONE).then_some(self.0)
            }
        }

        impl From<Option<$number>> for $name {
            fn from(number: Option<$number>) -> $name {
                number.map_or($name::NONE, $name)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.get().fmt(f)
            }
        }
    };
}

optional!(OptionalU64, u64, u64::MAX, "greatest");
optional!(OptionalI64, i64, i64::MIN, "least");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_numbers_round_trip() {
        for number in [None, Some(0), Some(u64::MAX - 1)] {
            assert_eq!(OptionalU64::from(number).get(), number);
        }
        for number in [None, Some(0), Some(i64::MIN + 1), Some(i64::MAX)] {
            assert_eq!(OptionalI64::from(number).get(), number);
        }
        assert_eq!(OptionalU64::from(Some(u64::MAX)).get(), None);
    }
}
