mod crashes;
mod lifecycle;
mod reading;
