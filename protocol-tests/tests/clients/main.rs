//! Every public client does the same walk (`clients/README.md`): create a topic, produce with each codec, read by
//! assignment and in a group of two, commit, go on over a restart of the broker, delete.

mod console;
mod kcat;
mod levels;
mod libraries;
