//! Certificates of servers and clients on this machine, made once per process.

use std::path::Path;
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// Name of the authority.
const NAME: &str = "authority of the test";

/// PEM of an authority and of what it signed. All server certificates have the same key.
pub struct Certificates {
    pub authority: String,
    /// Another authority of the same name, which signed nothing.
    pub namesake: String,
    /// For `localhost` and 127.0.0.1.
    pub server: String,
    pub server_key: String,
    /// For another name.
    pub misnamed: String,
    pub expired: String,
    pub client: String,
    pub client_key: String,
    /// A client's certificate that another authority signed, with the same key.
    pub foreign_client: String,
}

pub fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(Certificates::make)
}

impl Certificates {
    fn make() -> Self {
        let (authority, issuer) = make_authority(NAME);
        let (namesake, _) = make_authority(NAME);
        let (_, foreign_issuer) = make_authority("another authority");
        let [server_key, client_key] = [(); 2].map(|()| KeyPair::generate().unwrap());
        let local = || params(&["localhost", "127.0.0.1"]);
        let mut expired = local();
        expired.not_after = date_time_ymd(2020, 1, 1);
        let mut client = params(&[]);
        client.distinguished_name.push(DnType::CommonName, "holdfast");
        let server = |params: CertificateParams| params.signed_by(&server_key, &issuer).unwrap();
        Self {
            authority,
            namesake,
            server: server(local()).pem(),
            misnamed: server(params(&["elsewhere.example"])).pem(),
            expired: server(expired).pem(),
            client: client.signed_by(&client_key, &issuer).unwrap().pem(),
            foreign_client: client.signed_by(&client_key, &foreign_issuer).unwrap().pem(),
            server_key: server_key.serialize_pem(),
            client_key: client_key.serialize_pem(),
        }
    }

    /// Writes all of them to a folder, each as `NAME.pem`.
    pub fn write(&self, folder: &Path) {
        for (name, pem) in [
            ("authority", &self.authority),
            ("namesake", &self.namesake),
            ("server", &self.server),
            ("server-key", &self.server_key),
            ("misnamed", &self.misnamed),
            ("expired", &self.expired),
            ("client", &self.client),
            ("client-key", &self.client_key),
            ("foreign-client", &self.foreign_client),
        ] {
            std::fs::write(folder.join(name).with_extension("pem"), pem).unwrap();
        }
    }
}

fn make_authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut authority = params(&[]);
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(authority, key))
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}
