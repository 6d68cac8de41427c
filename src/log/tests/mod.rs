//! Logs on the in-memory file system: damage, crashes at every step, models.

mod compaction;
mod compaction_crashes;
mod compaction_model;
mod conversion;
mod crashes;
mod damage;
mod faults;
mod following;
mod housekeeping;
mod kafka_data;
mod lifecycle;
mod loading;
mod model;
mod reading;
mod sequences;
mod splitting;
