/// Values by number, in chunks that never move: growing copies nothing and leaves no room unused.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Box<[Option<T>]>>,
    /// Numbers that hold nothing; the last one freed is used first.
    free: Vec<u32>,
    /// All numbers from here on have never been used.
    end: u32,
}

const CHUNK: usize = 256;

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), free: Vec::new(), end: 0 }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.end as usize - self.free.len()
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = self.end;
                self.end = number.checked_add(1).expect("four billion values do not fit in memory");
                number
            }
        };
        let (chunk, place) = split(number);
        if chunk == self.chunks.len() {
            self.chunks.push((0..CHUNK).map(|_| None).collect());
        }
        self.chunks[chunk][place] = Some(value);
        number
    }

    /// # Panics
    /// When the number holds nothing.
    pub(super) fn remove(&mut self, number: u32) -> T {
        let (chunk, place) = split(number);
        let value = self.chunks[chunk][place].take().expect("a number in use holds a value");
        self.free.push(number);
        value
    }

    /// # Panics
    /// When the number holds nothing.
    pub(super) fn at(&self, number: u32) -> &T {
        let (chunk, place) = split(number);
        self.chunks[chunk][place].as_ref().expect("a number in use holds a value")
    }

    /// # Panics
    /// When the number holds nothing.
    pub(super) fn at_mut(&mut self, number: u32) -> &mut T {
        let (chunk, place) = split(number);
        self.chunks[chunk][place].as_mut().expect("a number in use holds a value")
    }
}

fn split(number: u32) -> (usize, usize) {
    (number as usize / CHUNK, number as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_freed_last_is_used_first() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..1000).map(|value| slab.insert(value)).collect();
        assert_eq!((slab.remove(numbers[3]), slab.remove(numbers[700])), (3, 700));
        assert_eq!(slab.len(), 998);
        assert_eq!((slab.insert(-1), slab.insert(-2), slab.insert(-3)), (numbers[700], numbers[3], 1000));
        assert_eq!((*slab.at(numbers[3]), *slab.at(numbers[999])), (-2, 999));
        *slab.at_mut(numbers[5]) += 1;
        assert_eq!(slab.remove(numbers[5]), 6);
    }
}
