//! Problem types (RFC 9457): a closed set, with a page for each.

use actix_web::http::StatusCode;

#[derive(Debug, Clone, Copy)]
pub struct ProblemDefinition {
    /// The last segment of the problem's `type`.
    pub name: &'static str,
    pub status: u16,
    pub title: &'static str,
    pub meaning: &'static str,
    /// The next step of a program.
    pub advice: &'static str,
    /// The next step of a person, if it differs.
    pub page_advice: Option<&'static str>,
    /// A link for the next step of a person: an address and its label.
    pub link: Option<(&'static str, &'static str)>,
    pub retry_after_s: Option<u64>,
}

const DEFAULTS: ProblemDefinition = ProblemDefinition {
    name: "",
    status: 500,
    title: "",
    meaning: "",
    advice: "",
    page_advice: None,
    link: None,
    retry_after_s: None,
};

/// Defines the problem types from the one table of them.
macro_rules! problem_types {
    ($($variant:ident = $name:literal, $status:literal, $title:literal {
        $($field:ident: $value:expr,)*
    })*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "`meaning` says it, for people too")]
        pub enum ProblemType {
            $($variant,)*
        }

        impl ProblemType {
            pub const ALL: [ProblemType; [$($name),*].len()] = [$(ProblemType::$variant),*];

            pub const fn definition(self) -> ProblemDefinition {
                match self {
                    $(ProblemType::$variant => ProblemDefinition {
                        name: $name,
                        status: $status,
                        title: $title,
                        $($field: $value,)*
                        ..DEFAULTS
                    },)*
                }
            }
        }
    };
}

problem_types! {
    InvalidRequest = "invalid-request", 422, "The request is not as it should be" {
        meaning: "Something in it is missing, misspelt or out of range, or its address takes no \
            such method or type of content. Nothing was changed.",
        advice: "Look at `detail`, and at `errors` if there are any: each names a field and \
            what it should be. Then send it again.",
        page_advice: Some("Go back, correct that, then send it again."),
    }
    Unauthenticated = "unauthenticated", 401, "Sign in first" {
        meaning: "The request carries no session, or one that is over.",
        advice: "Get a token from POST /api/sessions and send it as `Authorization: Bearer …`.",
        page_advice: Some("Sign in; you will come back here."),
        link: Some(("/sign-in", "Sign in")),
    }
    Forbidden = "forbidden", 403, "Not allowed" {
        meaning: "You are known, and this is not yours to do; or it is the lab's, and the lab \
            is off.",
        advice: "Sign in as somebody who may, or start the shop with the lab on.",
        page_advice: Some("Go back, reload the page and try again; or sign in as somebody who \
            may."),
        link: Some(("/sign-in", "Sign in")),
    }
    NotFound = "not-found", 404, "There is no such thing" {
        meaning: "It does not exist, or it is somebody else's; the shop does not say which.",
        advice: "Check the name or the id.",
        link: Some(("/shop", "Go to the shop")),
    }
    Exists = "exists", 409, "There is one already" {
        meaning: "The name is taken, or a run of the lab goes on already.",
        advice: "Choose another name; wait for the end of the run.",
    }
    SoldOut = "sold-out", 409, "Not enough on the shelf" {
        meaning: "Fewer are left than were asked for. Nothing was ordered, not even the other \
            lines.",
        advice: "Order fewer, or wait for a restock. The same key may try again.",
        page_advice: Some("Lower the quantity, or take the item out of the basket."),
    }
    LimitReached = "limit-reached", 409, "You may have no more of this item" {
        meaning: "There are enough of it, and only so many for one customer. What is in your \
            orders counts, as long as they are pending or paid. Nothing was ordered, not even \
            the other lines.",
        advice: "Order `limit` − `already` at most, or cancel an order that has it. The same \
            key may try again.",
        page_advice: Some("Lower the quantity or take the item out of the basket; or cancel an \
            order that has it."),
        link: Some(("/orders", "Look at your orders")),
    }
    InsufficientFunds = "insufficient-funds", 402, "Not enough on the account" {
        meaning: "The balance is smaller than what is to be paid. Nothing was paid.",
        advice: "Top the account up, then pay again. The same key may try again.",
        page_advice: Some("Top your account up, then pay again."),
        link: Some(("/account", "Top up")),
    }
    OrderState = "order-state", 409, "The order is past that" {
        meaning: "An order is paid or cancelled once, and refunded once after it was paid.",
        advice: "Read the order to see how it stands.",
        page_advice: Some("The order is shown below as it stands now."),
    }
    OrderExpired = "order-expired", 409, "The order was not paid in time" {
        meaning: "Its units were held until `expires_at`. They are on the shelf again, or will \
            be in a moment.",
        advice: "Place a new order.",
        link: Some(("/shop", "Go to the shop")),
    }
    IdempotencyKeyMissing = "idempotency-key-missing", 400, "An idempotency key is missing" {
        meaning: "This request changes something, so it must be safe to send twice.",
        advice: "Send a header `Idempotency-Key` with a fresh UUID (or `?token=`), and the same \
            one again when you ask again.",
    }
    IdempotencyKeyInFlight = "idempotency-key-in-flight", 409, "The same request is being worked on" {
        meaning: "Another request with this key has not finished yet.",
        advice: "Wait as long as `Retry-After` says and send the same request: you will get its \
            answer.",
        page_advice: Some("Wait a moment and send the form again: you will get the same order, \
            not a second one."),
    }
    IdempotencyKeyMismatch = "idempotency-key-mismatch", 422, "The key was used for another request" {
        meaning: "A key stands for one request. This one came with another payload before.",
        advice: "Mint a new key for a new request.",
    }
    IdempotencyKeyUsed = "idempotency-key-used", 409, "The key was used long ago" {
        meaning: "It did its work more than a day ago, and the answer is not kept so long.",
        advice: "Read the order named in `order_id`; for a new order mint a new key.",
    }
    LockBusy = "lock-busy", 423, "Somebody else is changing this" {
        meaning: "The lock is taken, and the request did not want to wait for it. \
            `holder_process`, `holder_since` and `holder_fence` say by whom, as far as that is \
            known.",
        advice: "Try again after `retry_after_ms`.",
        page_advice: Some("Wait a moment and try again. One person places one order at a time, so \
            that a double click makes one order."),
    }
    LockTimeout = "lock-timeout", 503, "Waited for the lock in vain" {
        meaning: "The lock stayed taken for as long as the request could wait. Nothing was \
            changed. `holder_process`, `holder_since` and `holder_fence` say who had it at the \
            end, as far as that is known.",
        advice: "Try again after `Retry-After`, with the same key.",
        page_advice: Some("Wait a moment and try again."),
        retry_after_s: Some(1),
    }
    LockLost = "lock-lost", 503, "The lock was lost on the way" {
        meaning: "The lease ended before the work was done, so the work was not written.",
        advice: "Try again with the same key.",
        page_advice: Some("Wait a moment and try again."),
        retry_after_s: Some(1),
    }
    Overloaded = "overloaded", 503, "Too much at once" {
        meaning: "More wait already than can be served within a moment, so this request was not \
            made to wait in vain. Nothing was changed by it. Whether an earlier request with \
            the same key was carried out, this does not say.",
        advice: "Try again after `Retry-After`, with the same key: what it has done is told \
            then, and not done twice.",
        page_advice: Some("Wait a moment and try again."),
        retry_after_s: Some(1),
    }
    Unavailable = "unavailable", 503, "Postgres or Redis is unavailable" {
        meaning: "Without them the shop can't promise that nothing is sold twice, so it does \
            not sell. With `outcome: unknown`, the change may have been made.",
        advice: "Try again after `Retry-After`, with the same key: you will get the truth.",
        page_advice: Some("Wait a moment and try again. Sending the same form again is safe."),
        retry_after_s: Some(1),
    }
    ShuttingDown = "shutting-down", 503, "This replica is shutting down" {
        meaning: "It accepts requests for a few seconds more, finishes them, and then stops. Only \
            `/readyz` responds with this problem.",
        advice: "Send requests to another replica.",
        retry_after_s: Some(1),
    }
    TooManyRequests = "too-many-requests", 429, "Slower, please" {
        meaning: "More requests came from you than the shop takes from one hand: one user, one \
            address, or one name that somebody tries to sign in as; `limit` says which. Nothing \
            was looked at and nothing was changed.",
        advice: "Wait as long as `Retry-After` says (`retry_after_ms` says it more exactly), \
            then ask again; an order with the same key. `RateLimit` on every answer says how \
            many requests are left.",
        page_advice: Some("Wait a moment and try again."),
        retry_after_s: Some(1),
    }
    RequestTimeout = "request-timeout", 408, "The request did not arrive in time" {
        meaning: "Its body came too slowly, or not at all. Nothing was done, and the connection \
            is closed.",
        advice: "Send it again, with the same key.",
        page_advice: Some("Check your connection and send the form again."),
    }
    WrongHost = "wrong-host", 421, "Not an address of this shop" {
        meaning: "The request names a host that this shop does not serve. Nothing was done.",
        advice: "Use an address that `HOLDFAST_PUBLIC_HOSTS` lists, or add this one to it.",
        page_advice: Some("Open the shop under its own address. Its operator can add this one to \
            HOLDFAST_PUBLIC_HOSTS."),
    }
    PayloadTooLarge = "payload-too-large", 413, "The request is too large" {
        meaning: "A body may have 64 KiB.",
        advice: "Send less.",
    }
    InternalError = "internal-error", 500, "An error in the shop" {
        meaning: "The shop met a case it was not written for. Nothing was changed.",
        advice: "Try again with the same key; tell us the `X-Request-Id`.",
    }
}

impl ProblemType {
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.definition().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|problem_type| problem_type.definition().name == name)
    }
}
