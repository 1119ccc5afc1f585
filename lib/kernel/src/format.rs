//! Where the fields of an event's records lie: the `format` files of tracefs.
//!
//! Given a file's text; gives the event's number and its fields. The text is the running kernel's:
//! what is not understood is left out, and a field that is not there reads as nothing.
//!
//! Must not know: which events somebody wants, and what their fields mean.

use std::collections::HashMap;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Its name within its group.
    pub name: String,
    /// The number that its records begin with.
    pub id: u16,
    /// Its fields, those that all events have included, by name.
    fields: HashMap<String, Field>,
    /// Names of its own fields, in order.
    own: Vec<String>,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its type, as a C declaration has it.
    pub declaration: String,
    offset: usize,
    bytes: usize,
    is_signed: bool,
}

impl Format {
    /// `None`: it has no number.
    pub fn parse(text: &str) -> Option<Self> {
        let mut format = Self::default();
        let mut has_id = false;
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("name:") {
                format.name = name.trim().to_owned();
            } else if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().ok()?;
                has_id = true;
            } else if let Some((name, field)) = line.strip_prefix("field:").and_then(field) {
                if !name.starts_with("common_") {
                    format.own.push(name.clone());
                }
                format.fields.insert(name, field);
            }
        }
        has_id.then_some(format)
    }

    /// Names of the fields that are the event's own, in order.
    pub fn own_fields(&self) -> impl Iterator<Item = (&str, &Field)> {
        let named = |name: &'_ String| self.fields.get_key_value(name);
        self.own
            .iter()
            .filter_map(named)
            .map(|(name, field)| (name.as_str(), field))
    }

    /// A number of a record.
    pub fn number(&self, record: &[u8], field: &str) -> Option<i64> {
        let f = self.fields.get(field)?;
        f.number(record)
    }

    /// A number of an array of a record, of eight bytes each.
    pub fn word(&self, record: &[u8], field: &str, index: usize) -> Option<u64> {
        let f = self.fields.get(field)?;
        let start = f.offset.checked_add(index.checked_mul(8)?)?;
        let words = record.get(f.offset..f.offset.checked_add(f.bytes)?)?;
        let bytes = words.get(start - f.offset..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// A text of a record: a fixed array of characters, or one whose place the record says
    /// (`__data_loc`).
    pub fn text(&self, record: &[u8], field: &str) -> Option<String> {
        let bytes = self.all_bytes(record, field)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
    }

    /// The same as it is, up to the byte 0 that ends it, with that.
    pub fn bytes(&self, record: &[u8], field: &str) -> Option<Vec<u8>> {
        let bytes = self.all_bytes(record, field)?;
        let end = bytes.iter().position(|b| *b == 0);
        let end = end.map_or(bytes.len(), |zero| zero + 1);
        bytes.get(..end).map(<[u8]>::to_vec)
    }

    fn all_bytes<'a>(&self, record: &'a [u8], field: &str) -> Option<&'a [u8]> {
        let f = self.fields.get(field)?;
        match f.declaration.starts_with("__data_loc") {
            true => {
                let place = f.number(record)? as u32;
                let (start, length) = ((place & 0xffff) as usize, (place >> 16) as usize);
                record.get(start..start.checked_add(length)?)
            }
            false => record.get(f.offset..f.offset.checked_add(f.bytes)?),
        }
    }
}

impl Field {
    /// The number in a record.
    pub fn number(&self, record: &[u8]) -> Option<i64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.bytes)?)?;
        let mut whole = [0; 8];
        whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let value = u64::from_le_bytes(whole);
        let unused = 64 - 8 * bytes.len() as u32;
        Some(match self.is_signed {
            _ if unused == 64 => 0,
            true => (value << unused) as i64 >> unused,
            false => value as i64,
        })
    }
}

/// A line such as `int prev_prio; offset:28; size:4; signed:1;`.
fn field(text: &str) -> Option<(String, Field)> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut numbers = HashMap::new();
    for part in parts {
        if let Some((key, value)) = part.split_once(':') {
            numbers.insert(key, value.parse::<usize>().ok()?);
        }
    }
    let (kind, name) = declaration.rsplit_once(' ')?;
    let name = name.trim_start_matches('*');
    let name = name.split('[').next()?;
    let field = Field {
        declaration: kind.to_owned(),
        offset: *numbers.get("offset")?,
        bytes: *numbers.get("size")?,
        is_signed: numbers.get("signed") == Some(&1),
    };
    Some((name.to_owned(), field))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch
ID: 372
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] filename;\toffset:28;\tsize:4;\tsigned:0;

print fmt: \"%s\", REC->prev_comm";

    #[test]
    fn fields_are_found_and_read() {
        let format = Format::parse(SWITCH).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("sched_switch", 372));
        let own: Vec<_> = format.own_fields().map(|(name, _)| name).collect();
        assert_eq!(own, ["prev_comm", "prev_pid", "filename"]);
        let mut record = vec![0; 40];
        record[4..8].copy_from_slice(&(-1i32).to_le_bytes());
        record[8..13].copy_from_slice(b"bash\0");
        record[24..28].copy_from_slice(&77u32.to_le_bytes());
        record[28..32].copy_from_slice(&(32u32 | 3 << 16).to_le_bytes());
        record[32..35].copy_from_slice(b"ls\0");
        assert_eq!(format.number(&record, "common_pid"), Some(-1));
        assert_eq!(format.number(&record, "prev_pid"), Some(77));
        assert_eq!(format.text(&record, "prev_comm").as_deref(), Some("bash"));
        assert_eq!(format.text(&record, "filename").as_deref(), Some("ls"));
    }

    #[test]
    fn what_is_not_there_reads_as_nothing() {
        let format = Format::parse(SWITCH).unwrap();
        assert_eq!(format.number(&[0; 4], "prev_pid"), None);
        assert_eq!(format.number(&[0; 64], "next_pid"), None);
        assert_eq!(Format::parse("name: nothing"), None);
        let wild = "ID: 1\n\tfield:int x;\toffset:99999999999999999999;\tsize:4;\tsigned:0;";
        assert_eq!(Format::parse(wild).unwrap().number(&[0; 64], "x"), None);
        let wide = "ID: 1\n\tfield:char x[16];\toffset:0;\tsize:16;\tsigned:0;";
        assert_eq!(Format::parse(wide).unwrap().number(&[0; 64], "x"), None);
    }
}
