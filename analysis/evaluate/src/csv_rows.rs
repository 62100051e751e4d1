//! Reads the rows of a CSV file of measurements, up to a limit. Rows that do not parse are counted
//! by reason.

/// The maximum number of rows read from one file.
const MAX_ROWS: usize = 20_000;

/// The number of rows that were left out, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(pub Vec<(String, usize)>);

impl LeftOut {
    /// Counts one row.
    pub fn count(&mut self, why: &str) {
        match self.0.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, count)) => *count += 1,
            None => self.0.push((why.to_owned(), 1)),
        }
    }
}

/// A CSV file after reading its header.
pub(super) struct CsvFile<'a> {
    reader: csv::Reader<&'a [u8]>,
    header: csv::ByteRecord,
}

impl<'a> CsvFile<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// If there is no header.
    pub(super) fn open(bytes: &'a [u8]) -> Result<CsvFile<'a>, String> {
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
        let header = reader.byte_headers().map_err(|error| error.to_string())?.clone();
        Ok(CsvFile { reader, header })
    }

    /// Returns the index of a column.
    pub(super) fn column(&self, title: &str) -> Option<usize> {
        self.header.iter().position(|found| found == title.as_bytes())
    }

    /// Returns the index of a required column.
    ///
    /// # Errors
    /// If the column is missing.
    pub(super) fn needed(&self, title: &str) -> Result<usize, String> {
        self.column(title).ok_or_else(|| format!("it has no column {title}"))
    }

    /// Reads the rows. `parse` gets the fields of a row and returns the row, or the reason to leave
    /// it out.
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
            if read >= MAX_ROWS {
                left_out.count(&format!("what follows after {MAX_ROWS} rows"));
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
    /// Returns the text of a column. `None` if it is missing or not UTF-8.
    pub(super) fn text(&self, column: usize) -> Option<&'a str> {
        str::from_utf8(self.0.get(column)?).ok()
    }

    /// Returns the positive time in a column.
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
    fn long_files_are_read_up_to_the_limit() {
        let long = format!("name,ms\n{}", "a,\n".repeat(MAX_ROWS + 5));
        let more = format!("what follows after {MAX_ROWS} rows");
        check(&long, &[], &[("no time", MAX_ROWS), (&more, 1)]);
    }

    #[test]
    fn a_missing_column_is_named() {
        let file = CsvFile::open(b"name\n").expect("it has a header");
        assert_eq!(file.needed("ms"), Err("it has no column ms".to_owned()));
    }
}
