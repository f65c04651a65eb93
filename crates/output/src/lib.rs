//! Events as EVE JSON and the other formats.
