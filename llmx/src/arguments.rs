//! What people give to commands: lengths of time in seconds, amounts of money, addresses, names of files.

use agents::model::config::PRICE_DECIMALS;
use agents::model::shape::decimal;
use std::fmt::Display;
use std::io::{self, Read as _};
use std::net::{AddrParseError, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemas::payload::INTEGER_MAX;

use ::agents::bargain::Domain;

use crate::output::Failure;

/// Shortest length of time that can be asked for, in seconds.
const SECONDS_MIN: f64 = 0.001;
/// Longest one: a year.
const SECONDS_MAX: f64 = 31_536_000.0;
/// Decimal places of an amount: micro-units.
const PLACES: usize = 6;

/// Converts what a command line says into what it means: `same_variants!(Console => ConsoleAccess: Token, Open, Off)`.
#[macro_export]
macro_rules! same_variants {
    ($said:ident => $meant:ident: $($variant:ident),+) => {
        impl From<$said> for $meant {
            fn from(said: $said) -> Self {
                match said {
                    $($said::$variant => Self::$variant,)+
                }
            }
        }
    };
}

/// An argument as a shell reads it back.
pub fn quoted(arg: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=,@%+".contains(character);
    if !arg.is_empty() && arg.chars().all(is_plain) {
        return arg.to_owned();
    }
    format!("'{}'", arg.replace('\'', "'\\''"))
}

/// How long a run lasts: a number of seconds, from none to a year.
///
/// # Errors
/// [`Failure::configuration`] that names `--duration`.
pub fn run_length(seconds: f64) -> Result<Duration, Failure> {
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| length.as_secs_f64() <= SECONDS_MAX);
    length
        .ok_or_else(|| Failure::configuration(format_args!("--duration: at most {SECONDS_MAX} seconds, not {seconds}")))
}

/// How long ago the clock began, for names that no other run has.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A negotiation's own part of an id that no other run gives: `call-6a1b…`.
pub fn new_id(kind: &str) -> String {
    format!("{kind}-{:x}", since_epoch().as_micros())
}

/// Largest domain file read, in bytes: room for two utilities of each of a million outcomes.
pub const DOMAIN_BYTES_MAX: u64 = 64 << 20;

/// A length of time in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || format!("a number of seconds from {SECONDS_MIN} to {SECONDS_MAX} is expected");
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    // What is less would be rounded to no time at all, which timers do not take.
    if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(expected()) }
}

/// A part of a whole, from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share from 0 to 1 is expected".to_owned())
}

/// An amount in micro-units as units: `85`, `0.5`.
pub fn units(micros: i64) -> String {
    decimal(micros, PRICE_DECIMALS)
}

/// An amount in units, such as `90` or `89.50`, in micro-units: exactly, or not at all.
pub fn micros(text: &str) -> Result<i64, String> {
    let expected = || {
        format!(
            "an amount such as 90 or 89.50 is expected: at most {PLACES} decimals, at most {}",
            INTEGER_MAX / 1_000_000
        )
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > PLACES {
        return Err(expected());
    }
    let micros: i64 = format!("{whole}{decimals:0<PLACES$}").parse().map_err(|_| expected())?;
    if micros <= INTEGER_MAX { Ok(micros) } else { Err(expected()) }
}

/// Checks the address of something that answers over HTTP.
pub fn http_url(text: &str) -> Result<String, String> {
    let is_fit = |url: &reqwest::Url| ["http", "https"].contains(&url.scheme()) && url.has_host();
    let url = reqwest::Url::parse(text).ok().filter(is_fit).ok_or("not an HTTP address; give http://HOST:PORT")?;
    // Addresses are shown, and stand in the lists of processes.
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address without user and password is expected".to_owned());
    }
    Ok(if url.path() == "/" { text.trim_end_matches('/') } else { text }.to_owned())
}

/// Reads an address to listen on.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error: AddrParseError| {
        format!("{error}; give IP:PORT, such as 127.0.0.1:8080: names are not looked up")
    })
}

/// Reads a file that a person names, as a text of at most so many bytes.
///
/// # Errors
/// The file's; [`io::ErrorKind::InvalidData`] when it is longer, or no text.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is longer than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// What is wrong with a file that a person names.
pub fn file_fault(path: &Path, what: impl Display) -> Failure {
    Failure::configuration(format_args!("{}: {what}", path.display()))
}

/// Reads a file that a person names, of at most so many bytes, and makes of it what it says.
pub fn read_file<T, E: Display>(
    path: &Path,
    bytes_max: u64,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    let text = read_text(path, bytes_max).map_err(|error| file_fault(path, error))?;
    parse(&text).map_err(|error| file_fault(path, error))
}

/// Reads a domain file.
pub fn read_domain(path: &Path) -> Result<Domain, Failure> {
    read_file(path, DOMAIN_BYTES_MAX, Domain::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_web_is_read_unless_it_holds_a_password() {
        assert_eq!(http_url("http://127.0.0.1:8080/"), Ok("http://127.0.0.1:8080".to_owned()));
        for bad in ["", "127.0.0.1:8080", "ftp://a", "http://", "https://bob@a", "https://bob:secret@a"] {
            assert!(http_url(bad).is_err_and(|fault| !fault.contains("secret")), "{bad}");
        }
    }

    #[test]
    fn a_length_of_time_is_between_a_millisecond_and_a_year() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("0.001"), Ok(Duration::from_millis(1)));
        assert_eq!(seconds("31536000"), Ok(Duration::from_secs(31_536_000)));
        for bad in ["", "0", "1e-10", "0.0009", "31536001", "1e-400", "-1", "NaN", "inf", "1e99", "ten"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_amount_is_read_exactly_or_refused() {
        for (text, amount) in
            [("90", 90_000_000), ("89.50", 89_500_000), ("0", 0), ("0.000001", 1), ("9007199254.740991", INTEGER_MAX)]
        {
            assert_eq!(micros(text), Ok(amount), "{text}");
        }
        for bad in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", "0.0000001", "9007199254.740992", "９", "1.2.3", "x"]
        {
            assert!(micros(bad).is_err(), "{bad}");
        }
    }
}
