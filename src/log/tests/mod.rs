mod crashes;
mod damage;
mod faults;
mod following;
mod housekeeping;
mod lifecycle;
mod reading;
