//! Who a client is and what it may do. Pure.

mod authorizer;
pub mod jaas;
mod principal;

pub use authorizer::{Authorizer, Operation, Resource};
pub use principal::Principal;
