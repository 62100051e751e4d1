//! The rows of a CSV file of measurements: bounded, and what does not parse is counted with its reason.

/// Rows of one file that are read.
const MOST_ROWS: usize = 20_000;

/// Rows that were left out, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(pub Vec<(String, usize)>);

impl LeftOut {
    /// Counts one.
    pub fn count(&mut self, why: &str) {
        match self.0.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, count)) => *count += 1,
            None => self.0.push((why.to_owned(), 1)),
        }
    }
}

/// A file whose header is read.
pub(super) struct CsvFile<'a> {
    reader: csv::Reader<&'a [u8]>,
    header: csv::ByteRecord,
}

impl<'a> CsvFile<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// Where there is none.
    pub(super) fn open(bytes: &'a [u8]) -> Result<CsvFile<'a>, String> {
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
        let header = reader.byte_headers().map_err(|error| error.to_string())?.clone();
        Ok(CsvFile { reader, header })
    }

    /// Where a column is.
    pub(super) fn column(&self, title: &str) -> Option<usize> {
        self.header.iter().position(|found| found == title.as_bytes())
    }

    /// Where a column is that no row can be read without.
    ///
    /// # Errors
    /// Where it is missing.
    pub(super) fn needed(&self, title: &str) -> Result<usize, String> {
        self.column(title).ok_or_else(|| format!("it has no column {title}"))
    }

    /// Reads the rows that follow. `parse` takes what gives a column's text, `None` where it is no
    /// text, and says why a row is left out.
    pub(super) fn rows<Row>(
        mut self,
        mut parse: impl FnMut(&Fields<'_>) -> Result<Row, &'static str>,
    ) -> (Vec<Row>, LeftOut) {
        let mut left_out = LeftOut::default();
        let mut rows = Vec::new();
        let mut record = csv::ByteRecord::new();
        for read in 0.. {
            match self.reader.read_byte_record(&mut record) {
                Ok(false) => break,
                Ok(true) => {}
                Err(error) => {
                    left_out.count(&format!("the rest of the file: {error}"));
                    break;
                }
            }
            if read >= MOST_ROWS {
                left_out.count(&format!("what follows after {MOST_ROWS} rows"));
                break;
            }
            match parse(&Fields(&record)) {
                Ok(row) => rows.push(row),
                Err(why) => left_out.count(why),
            }
        }
        (rows, left_out)
    }
}

/// The fields of one row.
pub(super) struct Fields<'a>(&'a csv::ByteRecord);

impl<'a> Fields<'a> {
    /// A column's text.
    pub(super) fn text(&self, column: usize) -> Option<&'a str> {
        str::from_utf8(self.0.get(column)?).ok()
    }

    /// A column's time, above zero.
    pub(super) fn milliseconds(&self, column: usize) -> Option<f64> {
        let number = self.text(column)?.parse::<f64>().ok()?;
        (number.is_finite() && number > 0.0).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, rows: &[(&str, f64)], left_out: &[(&str, usize)]) {
        let file = CsvFile::open(text.as_bytes()).expect("it has a header");
        let (name, time) = (file.needed("name").expect("a name"), file.needed("ms").expect("ms"));
        let (read, without) = file.rows(|fields| {
            let name = fields.text(name).ok_or("no name")?.to_owned();
            Ok((name, fields.milliseconds(time).ok_or("no time")?))
        });
        let read: Vec<_> = read.iter().map(|(name, time)| (name.as_str(), *time)).collect();
        let without: Vec<_> = without.0.iter().map(|(why, n)| (why.as_str(), *n)).collect();
        assert_eq!((read.as_slice(), without.as_slice()), (rows, left_out));
    }

    #[test]
    fn rows_are_read_or_counted_with_their_reason() {
        check("name, ms\na, 1.5\nb, -1\nc\nd, nan\n", &[("a", 1.5)], &[("no time", 3)]);
    }

    #[test]
    fn a_file_without_an_end_is_read_up_to_the_bound() {
        let long = format!("name,ms\n{}", "a,\n".repeat(MOST_ROWS + 5));
        let more = format!("what follows after {MOST_ROWS} rows");
        check(&long, &[], &[("no time", MOST_ROWS), (&more, 1)]);
    }

    #[test]
    fn a_missing_column_is_named() {
        let file = CsvFile::open(b"name\n").expect("it has a header");
        assert_eq!(file.needed("ms"), Err("it has no column ms".to_owned()));
    }
}
