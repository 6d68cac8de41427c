//! Who a client is and what it may do. Pure.

mod authorizer;
mod principal;

pub use authorizer::{Authorizer, Operation, Resource};
pub use principal::Principal;
