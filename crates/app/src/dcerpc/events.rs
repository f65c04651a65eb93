//! Anomalies of DCE/RPC.

events! { "DCE/RPC";
    TooManyTransactions "too_many_transactions";
}
