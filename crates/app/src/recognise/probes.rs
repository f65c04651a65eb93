//! Functions that tell protocols that no literal tells.
