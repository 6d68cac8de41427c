//! Clients from before 0.11: the old versions of the APIs by hand, Kafka's own old tools, and libraries that are told to
//! speak as to an old broker. Numbers such as C012 name the cases of other brokers that a test stands for.

mod libraries;
mod memory;
mod raw;
mod tools;
