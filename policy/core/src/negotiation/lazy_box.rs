//! Parts of a state that most open negotiations do not have yet.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A part that is allocated when it is first borrowed mutably: until then it takes the eight bytes of a pointer. In a
/// snapshot it stands as if it were always there.
#[derive(Debug)]
pub(crate) struct LazyBox<T>(Option<Box<T>>);

/// What can stand in a [`LazyBox`].
pub(crate) trait HasEmpty: Default + 'static {
    /// The part while nothing has changed it.
    fn empty() -> &'static Self;

    /// Whether it equals [`HasEmpty::empty`].
    fn is_empty(&self) -> bool;
}

impl<T> Default for LazyBox<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: HasEmpty> Deref for LazyBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(part) => part,
            None => T::empty(),
        }
    }
}

impl<T: HasEmpty> DerefMut for LazyBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: HasEmpty + Serialize> Serialize for LazyBox<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: HasEmpty + Deserialize<'de>> Deserialize<'de> for LazyBox<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let part = T::deserialize(deserializer)?;
        Ok(Self((!part.is_empty()).then(|| Box::new(part))))
    }
}
