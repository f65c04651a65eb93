//! The buffers that HTTP/1 and HTTP/2 share.

/// Declares them as [`buffers`] does, followed by those that the version has alone. `$line`, `$headers` and `$body` are the progress
/// of a message whose first line, headers and body are complete. `$early` says whether rules match a field before all fields are
/// complete.
macro_rules! http_buffers {
    ($line:ident $headers:ident $body:ident $early:literal $($own:tt)*) => {
        buffers! {
            Uri "http.uri" Single Some($line), None, about: "http request uri", is_modifier: true, letter: Some('U');
            UriRaw "http.uri.raw" Single Some($line), None,
                internal: "http_raw_uri", about: "raw http uri", is_modifier: true, letter: Some('I');
            Method "http.method" Single Some($line), None,
                about: "http request method", is_modifier: true, letter: Some('M'), is_common: true, form: $crate::Form::Method;
            RequestLine "http.request_line" ("http_request_line") Single Some($line), None;
            ResponseLine "http.response_line" ("http_response_line") Single None, Some($line);
            StatCode "http.stat_code" Single None, Some($line),
                about: "http response status code", is_modifier: true, letter: Some('S'), is_common: true;
            StatMsg "http.stat_msg" Single None, Some($line),
                about: "http response status message", is_modifier: true, letter: Some('Y'), is_common: true;
            Protocol "http.protocol" ("http_protocol") Single Some($line), Some($line), is_common: true, form: $crate::Form::Version;
            Header "http.header" Single Some($headers), Some($headers),
                about: "http headers", is_modifier: true, letter: Some('H');
            HeaderRaw "http.header.raw" Single Some($headers), Some($headers),
                internal: "http_raw_header", about: "raw http headers", is_modifier: true, letter: Some('D'), needs_flow: Some("detect-http-raw-header");
            HeaderNames "http.header_names" ("http_header_names") Single Some($headers), Some($headers), is_common: true;
            RequestHeader "http.request_header" Multi Some($headers), None, early: $early, about: "HTTP header name and value";
            ResponseHeader "http.response_header" Multi None, Some($headers), early: $early, about: "HTTP header name and value";
            Cookie "http.cookie" Single Some($headers), Some($headers), early: $early,
                about: "http cookie header", is_modifier: true, letter: Some('C');
            UserAgent "http.user_agent" Single Some($headers), None, early: $early, is_modifier: true, letter: Some('V');
            Host "http.host" Single Some($headers), None, is_modifier: true, letter: Some('W'), form: $crate::Form::Host;
            HostRaw "http.host.raw" Single Some($headers), None, early: $early,
                internal: "http_raw_host", about: "http raw host header", is_modifier: true, letter: Some('Z');
            Accept "http.accept" ("http_accept") Single Some($headers), None, early: $early, about: "http accept header";
            AcceptLang "http.accept_lang" ("http_accept_lang") Single Some($headers), None, early: $early,
                about: "http accept-language header";
            AcceptEnc "http.accept_enc" ("http_accept_enc") Single Some($headers), None, early: $early,
                about: "http accept-encoding header", is_common: true;
            Referer "http.referer" ("http_referer") Single Some($headers), None, early: $early, about: "http referer header";
            Connection "http.connection" ("http_connection") Single Some($headers), Some($headers), early: $early,
                about: "http connection header", is_common: true;
            ContentLen "http.content_len" ("http_content_len") Single Some($headers), Some($headers), early: $early,
                about: "http content length header", is_common: true;
            ContentType "http.content_type" ("http_content_type") Single Some($headers), Some($headers), early: $early,
                about: "http content type header";
            Location "http.location" ("http_location") Single None, Some($headers), early: $early, about: "http location header";
            Server "http.server" ("http_server") Single None, Some($headers), early: $early, about: "http server header";
            RequestBody "http.request_body" Stream Some($body), None,
                internal: "http_client_body", is_modifier: true, letter: Some('P');
            ResponseBody "http.response_body" Stream None, Some($body), ignores_flow: true;
            FileData "file.data" Stream None, Some($body);
            Arg "http.arg" Growing Some($headers), None, extra: Some($crate::tx::Extra::Arguments),
                about: "names and values of path, query, cookies and body";
            $($own)*
        }
    };
}
