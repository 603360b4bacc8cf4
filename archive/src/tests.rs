//! The archive against crashes at every byte, a full disk, alteration of every byte, and logs that are not its own.

mod bounded;
mod crash;
mod disk;
mod follow;
mod forge;
mod fork;
mod heard;
mod inventory;
mod lab;
mod tamper;
