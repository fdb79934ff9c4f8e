//! The decision in tables, with drawn worlds, and at its bounds.

mod bounds;
mod drawn;
mod table;
mod world;
