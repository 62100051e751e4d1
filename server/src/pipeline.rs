//! From a choice of script to a profile.
