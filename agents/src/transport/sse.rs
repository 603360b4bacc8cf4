//! Reading a stream of server-sent events (WHATWG HTML, section 9.2), as far as the exchange uses it.

/// Largest event read, in bytes; a longer one is skipped.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Turns bytes, in whatever pieces they come, into the data of deliveries. Events of another name are skipped, `id:`,
/// `retry:` and comments are read over: a delivery carries its own id.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Whether the event is named, and not `delivery`.
    is_other: bool,
    is_too_long: bool,
    after_carriage_return: bool,
}

impl SseReader {
    /// Reads a piece and appends the data of every delivery it completes.
    pub(super) fn handle_bytes(&mut self, bytes: &[u8], events: &mut Vec<Vec<u8>>) {
        for &byte in bytes {
            let was_carriage_return = std::mem::replace(&mut self.after_carriage_return, byte == b'\r');
            match byte {
                b'\n' if was_carriage_return => {}
                b'\n' | b'\r' => self.end_line(events),
                _ if self.line.len() + self.data.len() >= EVENT_BYTES_MAX => self.is_too_long = true,
                _ => self.line.push(byte),
            }
        }
    }

    fn end_line(&mut self, events: &mut Vec<Vec<u8>>) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            if let Some(value) = line.strip_prefix(b"data:") {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
                self.has_data = true;
            } else if let Some(name) = line.strip_prefix(b"event:") {
                self.is_other = name.trim_ascii() != b"delivery";
            }
            return;
        }
        let data = std::mem::take(&mut self.data);
        let is_skipped = std::mem::take(&mut self.is_too_long) | std::mem::take(&mut self.is_other);
        if std::mem::take(&mut self.has_data) && !is_skipped {
            events.push(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let stream = b": keep-alive\n\nid: 1\nevent: delivery\ndata: {\"a\":1}\n\ndata:x\r\ndata: y\r\n\r\nretry: 5\n\ndata: z\r\rdata: cut";
        let expected: Vec<Vec<u8>> = vec![br#"{"a":1}"#.to_vec(), b"x\ny".to_vec(), b"z".to_vec()];
        for size in 1..stream.len() {
            let mut reader = SseReader::default();
            let mut events = Vec::new();
            for piece in stream.chunks(size) {
                reader.handle_bytes(piece, &mut events);
            }
            assert_eq!(events, expected, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_delivery_is_skipped() {
        let mut events = Vec::new();
        let stream = b"event: closing\ndata: {\"reason\":\"expired\"}\n\nevent:delivery\ndata: a\n\ndata: b\n\n";
        SseReader::default().handle_bytes(stream, &mut events);
        assert_eq!(events, [b"a".to_vec(), b"b".to_vec()]);
    }

    #[test]
    fn an_endless_event_is_skipped_and_takes_no_memory() {
        let mut reader = SseReader::default();
        let mut events = Vec::new();
        reader.handle_bytes(b"data: ", &mut events);
        for _ in 0..6 {
            reader.handle_bytes(&vec![b'x'; 1024 * 1024], &mut events);
        }
        assert!(reader.line.len() <= EVENT_BYTES_MAX);
        reader.handle_bytes(b"\n\ndata: next\n\n", &mut events);
        assert_eq!(events, [b"next".to_vec()]);
    }
}
