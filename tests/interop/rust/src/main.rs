//! ureq over rustls and over native-tls: a page, a JSON call, a stream, an upload.
//!
//! The first argument chooses who decides about certificates: `native` (OpenSSL), `rustls` (the
//! system's, by SSL_CERT_FILE) or `bundled` (a list compiled in, which nobody can add to).
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

fn rustls_agent(roots: rustls::RootCertStore) -> ureq::Agent {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    ureq::AgentBuilder::new().tls_config(Arc::new(config)).build()
}

fn agent(kind: &str) -> ureq::Agent {
    let mut roots = rustls::RootCertStore::empty();
    match kind {
        "native" => {
            let connector = native_tls::TlsConnector::new().expect("native TLS");
            return ureq::AgentBuilder::new().tls_connector(Arc::new(connector)).build();
        }
        "rustls" => {
            for cert in rustls_native_certs::load_native_certs().certs {
                roots.add(cert).expect("a CA certificate");
            }
        }
        _ => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    rustls_agent(roots)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = agent(&std::env::args().nth(1).expect("a kind"));
    let page = agent.get("https://news.example/page").call()?.into_string()?;
    println!("page {}", page.len());
    let key = format!("Bearer {}", std::env::var("OPENAI_API_KEY")?);
    let ask = |body: &str| {
        agent
            .post("https://api.openai.com/v1/chat/completions")
            .set("Authorization", &key)
            .set("Content-Type", "application/json")
            .send_string(body)
    };
    let said = ask(r#"{"model":"m","messages":[]}"#)?.into_string()?;
    println!("{}", said.contains("hello from the stub"));
    let stream = BufReader::new(ask(r#"{"model":"m","messages":[],"stream":true}"#)?.into_reader());
    let events = stream.lines().map_while(Result::ok).filter(|l| l.starts_with("data: ")).count();
    println!("events {events}");
    let upload = vec![b'x'; 300_000];
    let echo = agent.post("https://news.example/echo").send(upload.as_slice())?;
    let mut back = Vec::new();
    echo.into_reader().read_to_end(&mut back)?;
    println!("echo {}", back == upload);
    Ok(())
}
