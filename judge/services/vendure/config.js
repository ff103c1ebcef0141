'use strict';

process.env.VENDURE_DISABLE_TELEMETRY = 'true';

const { DefaultLogger, LogLevel, dummyPaymentHandler } = require('@vendure/core');

// Vendure's defaults but for what is here.
module.exports = (port) => ({
  apiOptions: { hostname: '127.0.0.1', port },
  // A cookie is signed with a secret that each instance makes for itself.
  authOptions: { tokenMethod: 'bearer' },
  dbConnectionOptions: { type: 'postgres', url: process.env.DATABASE_URL },
  paymentOptions: { paymentMethodHandlers: [dummyPaymentHandler] },
  logger: new DefaultLogger({ level: LogLevel.Warn }),
});
