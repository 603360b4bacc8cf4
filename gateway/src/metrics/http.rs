use std::collections::HashMap;
use std::time::Duration;

use prometheus::{Error, Histogram, HistogramVec, IntGauge, Registry};

/// Buckets in seconds. Fewer than elsewhere: every route and method has all of them.
const HTTP_S: [f64; 10] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];
/// Methods as they stand in a label.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "other"];
/// The route of what no route answers, and of methods that a route does not offer.
const UNMATCHED: &str = "unmatched";
/// Answers as the histogram knows them: exact codes for every route would be too many series.
const CLASSES: [&str; 4] = ["101", "2xx", "4xx", "5xx"];
/// The one class that only a route which opens a WebSocket answers with.
const UPGRADED: &str = CLASSES[0];
/// A status the gateway does not answer with.
const OTHER: &str = "other";

/// Numbers, each with its text.
macro_rules! with_texts {
    ($($number:literal)+) => {
        [$(($number, stringify!($number))),+]
    };
}

/// Statuses the gateway answers with.
const STATUSES: [(u16, &str); 21] =
    with_texts![101 200 201 202 204 304 400 401 403 404 405 408 409 413 415 422 426 429 431 500 503];

telemetry::metrics! {
    /// HTTP requests.
    struct Requests {
        /// Time to answer an HTTP request, by class of the status (304 counts as 2xx). Methods a route does not offer count
        /// as unmatched.
        durations: Histogram(HTTP_S)[http_request_method, http_route, http_response_status_code; open]
            = "http_server_request_duration_seconds";
        /// HTTP requests being answered.
        in_flight: Gauge[http_route; open] = "exchange_http_requests_in_flight";
        /// HTTP requests answered, by exact status; those refused before they could be read to the end included.
        responses: Counter[http_response_status_code: &'static str = statuses()] = "exchange_http_responses_total";
    }
}

/// HTTP requests. Every series is there from the start and resolved: what is asked for makes no further one.
pub(crate) struct HttpMetrics {
    /// The last is [`UNMATCHED`].
    routes: Vec<Route>,
    index_by_path: HashMap<&'static str, usize>,
    requests: Requests,
}

struct Route {
    in_flight: IntGauge,
    /// By the place of a method in [`METHODS`]; none for those the route does not offer.
    durations: [Option<Durations>; METHODS.len()],
}

/// By the place of a class in [`CLASSES`].
type Durations = [Option<Histogram>; CLASSES.len()];

/// A request that is being answered; one that is abandoned is no longer in flight either.
pub(crate) struct InFlight {
    route: usize,
    method: usize,
    gauge: IntGauge,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

impl HttpMetrics {
    /// `paths` are the routes, each with the methods it offers, in lower case.
    pub(super) fn try_new(
        registry: &Registry,
        paths: &[(&'static str, &'static [&'static str])],
    ) -> Result<Self, Error> {
        let requests = Requests::try_new(registry)?;
        let route = |path: &str, offers: &dyn Fn(&str) -> bool| Route {
            in_flight: requests.in_flight.with_label_values(&[path]),
            durations: METHODS.map(|method| offers(method).then(|| classes(&requests.durations, method, path))),
        };
        let known = |(path, methods): &(&'static str, &'static [&'static str])| {
            route(path, &|method| methods.iter().any(|offered| offered.eq_ignore_ascii_case(method)))
        };
        Ok(Self {
            routes: paths.iter().map(known).chain([route(UNMATCHED, &|_| true)]).collect(),
            index_by_path: paths.iter().enumerate().map(|(index, (path, _))| (*path, index)).collect(),
            requests,
        })
    }

    /// A request is being answered; `matched` is the route's path, with its variables unresolved.
    pub(crate) fn began(&self, matched: Option<&str>, method: &str) -> InFlight {
        let unmatched = self.routes.len() - 1;
        let route = matched.and_then(|path| self.index_by_path.get(path).copied()).unwrap_or(unmatched);
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len() - 1);
        let gauge = self.routes[route].in_flight.clone();
        gauge.inc();
        InFlight { route, method, gauge }
    }

    /// A request line or header was refused, so that there is no request: neither route nor method is known, nor when it began.
    pub(crate) fn refused_early(&self, status: u16) {
        self.count(status);
    }

    /// It was answered.
    pub(crate) fn ended(&self, request: InFlight, status: u16, time: Duration) {
        self.count(status);
        let unmatched = &self.routes[self.routes.len() - 1];
        let offered = [&self.routes[request.route], unmatched].into_iter();
        let durations = offered.filter_map(|route| route.durations[request.method].as_ref()).next();
        if let Some(duration) = durations.and_then(|classes| classes[class(status)].as_ref()) {
            duration.observe(time.as_secs_f64());
        }
    }

    fn count(&self, status: u16) {
        let known = STATUSES.iter().find(|(known, _)| *known == status);
        self.requests.responses.of(known.map_or(OTHER, |(_, text)| text)).inc();
    }
}

fn statuses() -> Vec<&'static str> {
    STATUSES.iter().map(|(_, text)| *text).chain([OTHER]).collect()
}

/// The place of a status in [`CLASSES`].
const fn class(status: u16) -> usize {
    match status {
        0..200 => 0,
        200..400 => 1,
        400..500 => 2,
        500.. => 3,
    }
}

fn classes(durations: &HistogramVec, method: &str, path: &str) -> Durations {
    let is_upgraded = path.ends_with("/ws");
    CLASSES.map(|class| {
        let is_possible = class != UPGRADED || is_upgraded;
        is_possible.then(|| durations.with_label_values(&[method, path, class]))
    })
}

#[cfg(test)]
mod tests {
    use schemas::Code;

    use super::*;

    const PATHS: [(&str, &[&str]); 3] = [("/v1/agents/{id}", &["get", "put"]), ("/v1/ws", &["get"]), ("/", &["get"])];

    fn count(registry: &Registry, labels: [&str; 3]) -> u64 {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == "http_server_request_duration_seconds").unwrap();
        let values = |metric: &prometheus::proto::Metric| {
            ["http_request_method", "http_route", "http_response_status_code"]
                .map(|name| metric.get_label().iter().find(|pair| pair.name() == name).unwrap().value().to_owned())
        };
        family
            .get_metric()
            .iter()
            .filter(|metric| values(metric) == labels)
            .map(|m| m.get_histogram().get_sample_count())
            .sum()
    }

    fn series(registry: &Registry) -> usize {
        registry.gather().iter().map(|family| family.get_metric().len()).sum()
    }

    #[test]
    fn a_request_counts_under_its_route_and_class_and_a_strange_one_as_unmatched() {
        let registry = Registry::new();
        let metrics = HttpMetrics::try_new(&registry, &PATHS).unwrap();
        let before = series(&registry);
        let answered = |path, method, status| {
            metrics.ended(metrics.began(path, method), status, Duration::from_millis(3));
        };
        answered(Some("/v1/agents/{id}"), "PUT", 201);
        answered(Some("/v1/agents/{id}"), "DELETE", 405);
        answered(Some("/v1/ws"), "GET", 101);
        answered(Some("/never/heard/of"), "GET", 404);
        answered(None, "BREW", 418);
        answered(Some("/"), "GET", 304);
        assert_eq!(count(&registry, ["PUT", "/v1/agents/{id}", "2xx"]), 1);
        assert_eq!(count(&registry, ["DELETE", "unmatched", "4xx"]), 1);
        assert_eq!(count(&registry, ["GET", "/v1/ws", "101"]), 1);
        assert_eq!(count(&registry, ["GET", "unmatched", "4xx"]), 1);
        assert_eq!(count(&registry, ["other", "unmatched", "4xx"]), 1);
        assert_eq!(count(&registry, ["GET", "/", "2xx"]), 1);
        assert_eq!(series(&registry), before, "traffic makes no series");
    }

    #[test]
    fn a_request_that_is_abandoned_is_no_longer_in_flight() {
        let registry = Registry::new();
        let metrics = HttpMetrics::try_new(&registry, &PATHS).unwrap();
        let request = metrics.began(Some("/"), "GET");
        let gauge = request.gauge.clone();
        assert_eq!(gauge.get(), 1);
        drop(request);
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn every_code_has_a_status_of_its_own_in_the_exact_counter() {
        for code in Code::ALL {
            assert!(STATUSES.iter().any(|(status, _)| *status == code.http_status()), "{code}");
        }
        assert!(STATUSES.iter().all(|(status, text)| status.to_string() == *text));
    }
}
