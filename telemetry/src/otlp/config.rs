//! What the environment says about traces.

use std::borrow::Cow;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use percent_encoding::percent_decode_str;

use super::OtlpError;

/// Where spans go; absent: nowhere.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The same for traces alone, taken as it is.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// Share of all traces that is kept where none is asked for: enough to look at, and no load.
const RATIO_DEFAULT: f64 = 0.01;
/// The path of traces below an endpoint.
const PATH: &str = "v1/traces";
/// The one way spans are written.
const HTTP_PROTOBUF: &str = "http/protobuf";

/// Where spans go, how many, and in whose name.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpConfig {
    /// The collector's address for traces, path included.
    pub endpoint: String,
    /// Share of all traces that is kept, 0 to 1.
    pub ratio: f64,
    /// What is said of the process: `service.name` and its like.
    attributes: Vec<(String, String)>,
    /// What the environment says that is not known here, and is passed over: it may be meant for other programs.
    pub warnings: Vec<String>,
}

impl OtlpConfig {
    /// Reads the environment through `variable`; nothing when no collector is named, or tracing is switched off.
    ///
    /// # Errors
    /// [`OtlpError::Variable`] where no address stands where a collector is named.
    pub fn read(
        service: &str,
        instance: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, OtlpError> {
        let given = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        if given(DISABLED).is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let exporter = given(EXPORTER);
        if exporter.as_deref() == Some("none") {
            return Ok(None);
        }
        let Some(endpoint) = endpoint(&given)? else { return Ok(None) };
        let mut warnings = Vec::new();
        let mut pass_over = |error: OtlpError| warnings.push(error.to_string());
        if let Some(other) = exporter.filter(|exporter| exporter != "otlp") {
            pass_over(wrong(EXPORTER, format_args!("`{other}` is not known, traces go over otlp; or none")));
        }
        for name in [PROTOCOL, TRACES_PROTOCOL] {
            if let Some(protocol) = given(name).filter(|protocol| protocol != HTTP_PROTOBUF) {
                pass_over(wrong(
                    name,
                    format_args!("`{protocol}` is not spoken here, {HTTP_PROTOBUF} is, on port 4318 as a rule"),
                ));
            }
        }
        let ratio = ratio(&given, &mut pass_over);
        let attributes = attributes(service, instance, &given, &mut pass_over);
        Ok(Some(Self { endpoint, ratio, attributes, warnings }))
    }

    pub(super) fn resource(&self) -> Resource {
        let attributes = self.attributes.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
        let builder = Resource::builder_empty().with_detector(Box::new(TelemetryResourceDetector));
        builder.with_attributes(attributes).build()
    }
}

fn endpoint(given: &impl Fn(&str) -> Option<String>) -> Result<Option<String>, OtlpError> {
    let (name, url) = match (given(TRACES_ENDPOINT), given(ENDPOINT)) {
        (Some(url), _) => (TRACES_ENDPOINT, url),
        (None, Some(base)) => (ENDPOINT, format!("{}/{PATH}", base.trim_end_matches('/'))),
        (None, None) => return Ok(None),
    };
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let rest = rest.ok_or_else(|| wrong(name, "an address such as http://127.0.0.1:4318 is needed"))?;
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        return Err(wrong(name, "credentials do not belong in an address; OTEL_EXPORTER_OTLP_HEADERS carries them"));
    }
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (host, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    if host.is_empty() || !is_port || !is_plain {
        return Err(wrong(name, "an address such as http://127.0.0.1:4318 is needed"));
    }
    Ok(Some(url))
}

fn ratio(given: &impl Fn(&str) -> Option<String>, pass_over: &mut impl FnMut(OtlpError)) -> f64 {
    match given(SAMPLER).as_deref() {
        Some("always_on" | "parentbased_always_on") => return 1.0,
        Some("always_off" | "parentbased_always_off") => return 0.0,
        None | Some("traceidratio" | "parentbased_traceidratio") => {}
        Some(other) => {
            pass_over(wrong(SAMPLER, format_args!("`{other}` is not known; always_on, always_off or traceidratio")));
            // Its argument is not a share.
            return RATIO_DEFAULT;
        }
    }
    let Some(text) = given(SAMPLER_ARG) else { return RATIO_DEFAULT };
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.unwrap_or_else(|| {
        pass_over(wrong(SAMPLER_ARG, format_args!("`{text}` is not a share from 0 to 1")));
        RATIO_DEFAULT
    })
}

/// What is given later replaces what was given before.
fn attributes(
    service: &str,
    instance: &str,
    given: &impl Fn(&str) -> Option<String>,
    pass_over: &mut impl FnMut(OtlpError),
) -> Vec<(String, String)> {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut all = vec![
        pair("service.name", service),
        pair("service.instance.id", instance),
        pair("service.version", env!("CARGO_PKG_VERSION")),
    ];
    for one in given(ATTRIBUTES).unwrap_or_default().split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let named = one.split_once('=').filter(|(name, _)| !name.trim().is_empty());
        let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8().map(Cow::into_owned).ok();
        match named.and_then(|(name, value)| Some((decoded(name)?, decoded(value)?))) {
            Some(attribute) => all.push(attribute),
            None => pass_over(wrong(ATTRIBUTES, format_args!("`{one}` is not of the form name=value"))),
        }
    }
    all.extend(given(SERVICE).map(|name| pair("service.name", &name)));
    all
}

fn wrong(variable: &'static str, problem: impl std::fmt::Display) -> OtlpError {
    OtlpError::Variable { variable, problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpConfig>, OtlpError> {
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        OtlpConfig::read("llmx-gateway", "gateway-1", value)
    }

    fn on(more: &[(&str, &str)]) -> Result<OtlpConfig, OtlpError> {
        let variables = [&[(ENDPOINT, "http://collector:4318")], more].concat();
        read(&variables).map(Option::unwrap)
    }

    #[test]
    fn without_a_collector_nothing_is_traced() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[(ENDPOINT, " ")]).unwrap(), None);
        assert_eq!(read(&[(SAMPLER_ARG, "1.0")]).unwrap(), None);
        assert_eq!(read(&[(ENDPOINT, "http://a"), (DISABLED, "true")]).unwrap(), None);
        assert_eq!(read(&[(ENDPOINT, "http://a"), (EXPORTER, "none")]).unwrap(), None);
    }

    #[test]
    fn traces_have_a_path_below_the_endpoint_or_an_endpoint_of_their_own() {
        assert_eq!(on(&[]).unwrap().endpoint, "http://collector:4318/v1/traces");
        let with_slash = read(&[(ENDPOINT, "https://a/otlp/")]).unwrap().unwrap();
        assert_eq!(with_slash.endpoint, "https://a/otlp/v1/traces");
        assert_eq!(on(&[(TRACES_ENDPOINT, "http://[::1]:9/x")]).unwrap().endpoint, "http://[::1]:9/x");
    }

    #[test]
    fn one_trace_in_a_hundred_is_kept_unless_another_share_is_asked_for() {
        let ratio = |more: &[(&str, &str)]| on(more).unwrap().ratio;
        assert!((ratio(&[]) - 0.01).abs() < f64::EPSILON);
        assert!((ratio(&[(SAMPLER_ARG, "0.5")]) - 0.5).abs() < f64::EPSILON);
        assert!((ratio(&[(SAMPLER, "always_on")]) - 1.0).abs() < f64::EPSILON);
        assert!(ratio(&[(SAMPLER, "always_off"), (SAMPLER_ARG, "1")]).abs() < f64::EPSILON);
    }

    #[test]
    fn the_variable_that_is_wrong_is_named() {
        for (variable, value) in [
            (ENDPOINT, "collector:4318"),
            (ENDPOINT, "http://"),
            (ENDPOINT, "http://a b"),
            (ENDPOINT, "http://a:port"),
            (ENDPOINT, "http://user:password@a"),
            (TRACES_ENDPOINT, "ftp://a"),
        ] {
            let variables = if variable == ENDPOINT { vec![] } else { vec![(ENDPOINT, "http://a")] };
            let error = read(&[&variables[..], &[(variable, value)]].concat()).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{variable}: ")), "{variable}={value}: {error}");
            assert!(!error.to_string().contains("password"), "{error}");
        }
    }

    #[test]
    fn what_is_meant_for_other_programs_is_passed_over_with_its_name() {
        for (variable, value) in [
            (PROTOCOL, "grpc"),
            (TRACES_PROTOCOL, "http/json"),
            (EXPORTER, "zipkin"),
            (EXPORTER, "otlp,console"),
            (SAMPLER, "jaeger_remote"),
            (SAMPLER_ARG, "1.5"),
            (SAMPLER_ARG, "NaN"),
            (SAMPLER_ARG, "many"),
            (ATTRIBUTES, "zone"),
            (ATTRIBUTES, "=b"),
            (ATTRIBUTES, "zone=%ff"),
        ] {
            let config = on(&[(variable, value), (SERVICE, "b")]).unwrap();
            assert!(config.warnings[0].starts_with(&format!("{variable}: ")), "{variable}={value}: {config:?}");
            assert_eq!(OtlpConfig { warnings: Vec::new(), ..config }, on(&[(SERVICE, "b")]).unwrap());
        }
        assert!(on(&[]).unwrap().warnings.is_empty());
    }

    #[test]
    fn the_process_is_named_and_the_operator_has_the_last_word() {
        let value = |config: &OtlpConfig, name: &'static str| {
            config.resource().get(&opentelemetry::Key::from_static_str(name)).map(|value| value.to_string())
        };
        let plain = on(&[]).unwrap();
        assert_eq!(value(&plain, "service.name").as_deref(), Some("llmx-gateway"));
        assert_eq!(value(&plain, "service.instance.id").as_deref(), Some("gateway-1"));
        assert!(value(&plain, "telemetry.sdk.language").is_some());
        let named = on(&[
            (ATTRIBUTES, "deployment.environment.name = test,service.name=a,zo%6ee=Z%C3%BCrich%2C%20north"),
            (SERVICE, "b"),
        ])
        .unwrap();
        assert_eq!(value(&named, "service.name").as_deref(), Some("b"));
        assert_eq!(value(&named, "deployment.environment.name").as_deref(), Some("test"));
        assert_eq!(value(&named, "zone").as_deref(), Some("Zürich, north"));
    }
}
